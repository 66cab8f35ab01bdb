#include "constrain/grammar.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"

namespace redlite::constrain {

Grammar::Grammar(std::vector<Node> nodes, NodeId start)
    : nodes_(std::move(nodes)), start_(start), productive_(nodes_.size()) {
  find_productive();
}

void Grammar::find_productive() {
  const auto holds = [this](const Node& n) {
    switch (n.kind) {
      case Node::Kind::Return:
        return true;
      case Node::Kind::Bytes:
      case Node::Kind::String:
        return productive(n.next);
      case Node::Kind::Split:
        return productive(n.next) || productive(n.other);
      case Node::Kind::Call:
        return productive(n.next) && productive(n.other);
      case Node::Kind::Loop:
        return productive(n.next) && (n.min == 0 || productive(n.other));
      case Node::Kind::Never:
        return false;
    }
    return false;
  };
  // Most nodes lead to earlier ones, those set later to later ones: passes in both directions.
  for (bool changed = true; changed;) {
    changed = false;
    const auto visit = [&](size_t i) {
      if (productive_[i] || !holds(nodes_[i])) return;
      productive_[i] = 1;
      changed = true;
    };
    for (size_t i = 0; i < nodes_.size(); ++i) visit(i);
    for (size_t i = nodes_.size(); i-- > 0;) visit(i);
  }
}

GrammarBuilder::GrammarBuilder() : nodes_(2) {
  nodes_[kReturn].kind = Node::Kind::Return;
}

NodeId GrammarBuilder::add(const Node& node) {
  if (nodes_.size() >= kMaxNodes) fail("too large: it makes a grammar of more than {} steps", kMaxNodes);
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId GrammarBuilder::byte_range(uint8_t low, uint8_t high, NodeId next) {
  return add({.kind = Node::Kind::Bytes, .low = low, .high = high, .next = next});
}

NodeId GrammarBuilder::literal(std::string_view text, NodeId next) {
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    next = byte_range(byte, byte, next);
  }
  return next;
}

NodeId GrammarBuilder::either(NodeId first, NodeId second) {
  if (first == kNever) return second;
  if (second == kNever) return first;
  return add({.kind = Node::Kind::Split, .next = first, .other = second});
}

NodeId GrammarBuilder::any_of(std::span<const NodeId> choices) {
  NodeId out = kNever;
  for (size_t i = choices.size(); i-- > 0;) out = either(choices[i], out);
  return out;
}

NodeId GrammarBuilder::call(NodeId rule, NodeId next) {
  return add({.kind = Node::Kind::Call, .next = next, .other = rule});
}

NodeId GrammarBuilder::loop(NodeId body, uint32_t min, uint32_t max, NodeId next) {
  if (max < min) return kNever;
  if (max == 0) return next;
  return add({.kind = Node::Kind::Loop, .next = next, .other = body, .min = min, .max = max});
}

NodeId GrammarBuilder::string_rest(uint32_t min, uint32_t max, NodeId next, uint8_t state) {
  if (max < min) return kNever;
  return add({.kind = Node::Kind::String, .state = state, .next = next, .min = min, .max = max});
}

NodeId GrammarBuilder::until(std::string_view end, NodeId next) {
  return until_or_stop(end, next, kNever);
}

/// Knuth, Morris and Pratt's automaton: state i has seen the first i bytes of `end`.
NodeId GrammarBuilder::until_or_stop(std::string_view end, NodeId next, NodeId stop) {
  const size_t n = end.size();
  RL_CHECK(n > 0);
  std::vector<std::array<size_t, 256>> moves(n);
  size_t fallback = 0;  // the state that the longest proper suffix of what was seen leads to
  for (size_t i = 0; i < n; ++i) {
    moves[i] = i == 0 ? std::array<size_t, 256>{} : moves[fallback];
    const auto expected = static_cast<uint8_t>(end[i]);
    const size_t after = i == 0 ? 0 : moves[fallback][expected];
    moves[i][expected] = i + 1;
    fallback = after;
  }
  std::vector<NodeId> states(n + 1, next);
  for (size_t i = 0; i < n; ++i) states[i] = reserve();
  for (size_t i = 0; i < n; ++i) {
    std::vector<NodeId> choices = {stop};
    for (size_t low = 0; low < 256;) {
      size_t high = low;
      while (high + 1 < 256 && moves[i][high + 1] == moves[i][low]) ++high;
      choices.push_back(
          byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(high), states[moves[i][low]]));
      low = high + 1;
    }
    set(states[i], any_of(choices));
  }
  return states[0];
}

NodeId GrammarBuilder::reserve() {
  return add({.kind = Node::Kind::Split, .next = kNever, .other = kNever});
}

void GrammarBuilder::set(NodeId reserved, NodeId first) {
  RL_CHECK(nodes_[reserved].kind == Node::Kind::Split && nodes_[reserved].next == kNever);
  nodes_[reserved].next = first;
}

std::optional<NodeId> GrammarBuilder::find_left_recursion() const {
  // Tarjan's strongly connected components along what is reached without a byte (bodies take at least one, so
  // nothing behind a call is). One that has a call inside is a rule that can begin with itself.
  struct Visit {
    NodeId node;
    int edge;
  };
  constexpr uint32_t kNew = 0, kClosed = UINT32_MAX;
  std::vector<uint32_t> order(nodes_.size(), kNew), low(nodes_.size());
  std::vector<NodeId> open;
  std::vector<Visit> path;
  uint32_t n_visited = 0;
  const auto target = [&](NodeId id, int edge) -> std::optional<NodeId> {
    const Node& n = nodes_[id];
    if (n.kind == Node::Kind::Split && edge < 2) return edge == 0 ? n.next : n.other;
    if (n.kind == Node::Kind::Call && edge == 0) return n.other;
    if (n.kind == Node::Kind::Loop && edge == 0) return n.other;
    if (n.kind == Node::Kind::Loop && edge == 1 && n.min == 0) return n.next;
    return std::nullopt;
  };
  std::vector<uint32_t> component(nodes_.size());
  uint32_t n_components = 0;
  const auto enter = [&](NodeId id) {
    order[id] = low[id] = ++n_visited;
    open.push_back(id);
    path.push_back({id, 0});
  };
  for (NodeId root = 0; root < nodes_.size(); ++root) {
    if (order[root] == kNew) enter(root);
    while (!path.empty()) {
      const NodeId id = path.back().node;
      if (const auto to = target(id, path.back().edge++)) {
        if (order[*to] == kNew) {
          enter(*to);
        } else if (order[*to] != kClosed) {
          low[id] = std::min(low[id], order[*to]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[id]);
      if (low[id] != order[id]) continue;
      for (NodeId member = id + 1; member != id;) {
        member = open.back();
        open.pop_back();
        component[member] = n_components;
        order[member] = kClosed;
      }
      ++n_components;
    }
  }
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const Node::Kind kind = nodes_[id].kind;
    if ((kind == Node::Kind::Call || kind == Node::Kind::Loop) &&
        component[id] == component[nodes_[id].other])
      return nodes_[id].other;
  }
  return std::nullopt;
}

Grammar GrammarBuilder::finish(NodeId start) && {
  return Grammar(std::move(nodes_), start);
}

}  // namespace redlite::constrain
