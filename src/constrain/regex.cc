#include "constrain/regex.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "constrain/regex_parser.h"

namespace redlite::constrain {
namespace {

constexpr size_t kMaxStates = 4000;
constexpr size_t kMaxEdges = 100'000;

/// Thompson's automaton, with empty steps.
class Steps {
 public:
  enum class Empty : uint8_t { Always, AtBegin, AtEnd };
  struct State {
    std::vector<std::pair<Empty, uint32_t>> empty;
    std::optional<uint32_t> characters;  ///< a class, to `next`
    uint32_t next = 0;
  };

  explicit Steps(std::vector<CodePoints>& classes) : classes_(classes) {}

  uint32_t add() {
    if (states.size() >= kMaxStates) fail("a pattern that is too large: repeats of less help");
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
  void link(uint32_t from, uint32_t to, Empty when = Empty::Always) {
    states[from].empty.emplace_back(when, to);
  }

  uint32_t class_id(const CodePoints& set) {
    const auto same = [&](const CodePoints& other) { return other.ranges() == set.ranges(); };
    const auto found = std::find_if(classes_.begin(), classes_.end(), same);
    if (found == classes_.end()) {
      classes_.push_back(set);
      return static_cast<uint32_t>(classes_.size() - 1);
    }
    return static_cast<uint32_t>(found - classes_.begin());
  }

  /// From `from` through the expression; returns where that ends.
  uint32_t write(const RegexTree& e, uint32_t from) {
    switch (e.kind) {
      case RegexTree::Kind::Class: {
        const uint32_t to = add();
        states[from].characters = class_id(e.characters);
        states[from].next = to;
        return to;
      }
      case RegexTree::Kind::Begin:
      case RegexTree::Kind::End: {
        const uint32_t to = add();
        link(from, to, e.kind == RegexTree::Kind::Begin ? Empty::AtBegin : Empty::AtEnd);
        return to;
      }
      case RegexTree::Kind::Sequence:
        for (const RegexTree& part : e.parts) from = write(part, from);
        return from;
      case RegexTree::Kind::Choice: {
        const uint32_t end = add();
        for (const RegexTree& part : e.parts) {
          const uint32_t begin = add();
          link(from, begin);
          link(write(part, begin), end);
        }
        return end;
      }
      case RegexTree::Kind::Repeat:
        return write_repeat(e, from);
    }
    return from;
  }

  std::vector<State> states;

 private:
  uint32_t write_repeat(const RegexTree& e, uint32_t from) {
    const auto once = [&](uint32_t begin) {
      const uint32_t first = add();
      link(begin, first);
      const uint32_t last = add();
      link(write(e.parts[0], first), last);
      return last;
    };
    for (uint32_t i = 0; i < e.min; ++i) from = once(from);
    if (e.max == kNoLimit) {
      const uint32_t hub = add();
      link(from, hub);
      link(once(hub), hub);
      const uint32_t end = add();
      link(hub, end);
      return end;
    }
    const uint32_t end = add();
    for (uint32_t i = e.min; i < e.max; ++i) {
      link(from, end);
      from = once(from);
    }
    link(from, end);
    return end;
  }

  std::vector<CodePoints>& classes_;
};

}  // namespace

Regex::Regex(std::string_view pattern) {
  const RegexTree tree = parse_regex(pattern);
  Steps steps(classes_);
  const uint32_t anything = steps.class_id(CodePoints::all());
  // Anything in front, then the expression, then anything behind.
  const uint32_t front = steps.add();
  const uint32_t begin = steps.add();
  steps.link(front, begin);
  steps.states[front].characters = anything;
  steps.states[front].next = front;
  const uint32_t end = steps.write(tree, begin);
  const uint32_t back = steps.add();
  steps.link(end, back);
  steps.states[back].characters = anything;
  steps.states[back].next = back;

  // Without empty steps: from each state, the characters that can come next. Where only the end can follow,
  // none.
  size_t n_edges = 0;
  std::vector<uint32_t> seen(steps.states.size(), UINT32_MAX);
  const auto make = [&](uint32_t from, bool at_begin, uint32_t mark) {
    State out;
    std::vector<std::pair<uint32_t, bool>> todo = {{from, false}};
    std::vector<bool> only_end(steps.states.size());
    seen[from] = mark;
    for (size_t i = 0; i < todo.size(); ++i) {
      const auto [id, ended] = todo[i];
      const Steps::State& state = steps.states[id];
      if (id == back) out.accepts = true;
      if (!ended && state.characters) out.edges.push_back({*state.characters, state.next});
      for (const auto& [when, to] : state.empty) {
        if (when == Steps::Empty::AtBegin && !at_begin) continue;
        const bool behind_end = ended || when == Steps::Empty::AtEnd;
        // A state is visited at most once for either way.
        if (!behind_end && seen[to] != mark) {
          seen[to] = mark;
          todo.emplace_back(to, false);
        } else if (behind_end && !only_end[to]) {
          only_end[to] = true;
          todo.emplace_back(to, true);
        }
      }
    }
    n_edges += out.edges.size();
    if (n_edges > kMaxEdges) fail("a pattern that is too large: repeats of less help");
    return out;
  };
  // State i is what follows steps.states[i]; behind them, the beginning, which is moved to the front.
  std::map<uint32_t, uint32_t> ids;
  std::vector<uint32_t> order;
  states_.push_back(make(front, true, 0));
  const auto number = [&](std::vector<Edge>& edges) {
    for (Edge& edge : edges) {
      const auto [found, is_new] = ids.try_emplace(edge.to, static_cast<uint32_t>(order.size() + 1));
      if (is_new) order.push_back(edge.to);
      edge.to = found->second;
    }
  };
  number(states_[0].edges);
  for (size_t i = 0; i < order.size(); ++i) {
    states_.push_back(make(order[i], false, static_cast<uint32_t>(i + 1)));
    number(states_.back().edges);
  }
}

}  // namespace redlite::constrain
