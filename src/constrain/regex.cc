#include "constrain/regex.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/quote.h"
#include "tokenizer/unicode.h"

namespace redlite::constrain {
namespace {

constexpr uint32_t kLastCodePoint = 0x10ffff;
constexpr uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;
constexpr size_t kMaxPattern = 4096;
constexpr int kMaxNesting = 64;
constexpr size_t kMaxStates = 4000;
constexpr size_t kMaxEdges = 100'000;

struct Expression {
  enum class Kind : uint8_t { Class, Sequence, Choice, Repeat, Begin, End };
  Kind kind;
  CodePoints characters;
  std::vector<Expression> parts;
  uint32_t min = 0, max = 0;
};

CodePoints one(uint32_t low, uint32_t high) {
  CodePoints out;
  out.add(low, high);
  return out;
}

CodePoints digits() {
  return one('0', '9');
}

CodePoints word_characters() {
  CodePoints out = digits();
  out.add('A', 'Z');
  out.add('_', '_');
  out.add('a', 'z');
  return out;
}

CodePoints line_ends() {
  CodePoints out = one('\n', '\n');
  out.add('\r', '\r');
  out.add(0x2028, 0x2029);
  return out;
}

CodePoints white_space() {
  CodePoints out = one('\t', '\r');
  for (const uint32_t c : {0x20u, 0xa0u, 0x1680u, 0x202fu, 0x205fu, 0x3000u, 0xfeffu}) out.add(c, c);
  out.add(0x2000, 0x200a);
  out.add(0x2028, 0x2029);
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {
    if (pattern.size() > kMaxPattern) fail("a pattern of more than {} bytes", kMaxPattern);
  }

  Expression parse() {
    Expression out = choice();
    if (at_ < text_.size()) wrong("an unmatched )");
    return out;
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail("{} at byte {} of {}", what, at_, quote(text_));
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  uint32_t take_code_point() {
    const tokenizer::CodePoint c = tokenizer::decode_utf8(text_, at_);
    at_ += c.bytes;
    return c.value;
  }

  Expression choice() {
    if (++depth_ > kMaxNesting) wrong("groups nested too deeply");
    std::vector<Expression> branches;
    do {
      branches.push_back(sequence());
    } while (take("|"));
    --depth_;
    if (branches.size() == 1) return std::move(branches[0]);
    return {Expression::Kind::Choice, {}, std::move(branches)};
  }

  Expression sequence() {
    Expression out{Expression::Kind::Sequence, {}, {}};
    while (more() && peek() != '|' && peek() != ')') out.parts.push_back(repeated());
    return out;
  }

  Expression repeated() {
    Expression what = atom();
    const bool anchor = what.kind == Expression::Kind::Begin || what.kind == Expression::Kind::End;
    uint32_t min = 0, max = kNoLimit;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!bounds(min, max)) {
      return what;
    }
    if (anchor) wrong("nothing to repeat");
    take("?");  // which match is found first does not matter
    if (more() && (peek() == '*' || peek() == '+' || peek() == '?')) wrong("nothing to repeat");
    Expression out{Expression::Kind::Repeat, {}, {}, min, max};
    out.parts.push_back(std::move(what));
    return out;
  }

  /// {n}, {n,} or {n,m}; anything else in braces is text.
  bool bounds(uint32_t& min, uint32_t& max) {
    const size_t start = at_;
    if (!take("{")) return false;
    const std::optional<uint32_t> low = number();
    if (low) {
      min = max = *low;
      if (take(",")) max = number().value_or(kNoLimit);
      if (take("}")) {
        if (max < min) wrong("a repeat of more than its most");
        return true;
      }
    }
    at_ = start;
    return false;
  }

  std::optional<uint32_t> number() {
    const size_t start = at_;
    uint32_t out = 0;
    while (more() && peek() >= '0' && peek() <= '9') {
      out = out * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (out > 100'000) wrong("a repeat that is too large");
    }
    return at_ == start ? std::nullopt : std::optional(out);
  }

  Expression atom() {
    if (take("^")) return {Expression::Kind::Begin, {}, {}};
    if (take("$")) return {Expression::Kind::End, {}, {}};
    if (take(".")) return characters(line_ends().complement());
    if (take("[")) return characters(bracket());
    if (take("(")) {
      if (take("?")) {
        const bool named = !take(":");
        if (named && (!take("<") || (more() && (peek() == '=' || peek() == '!'))))
          wrong("look-around is not supported");
        if (named) {
          const size_t end = text_.find('>', at_);
          if (end == std::string_view::npos) wrong("a group's name that does not end");
          at_ = end + 1;
        }
      }
      Expression inner = choice();
      if (!take(")")) wrong("a group that does not end");
      return inner;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') wrong("nothing to repeat");
    if (take("\\")) return characters(escape(/*in_bracket=*/false));
    const uint32_t c = take_code_point();
    return characters(one(c, c));
  }

  static Expression characters(CodePoints set) { return {Expression::Kind::Class, std::move(set), {}}; }

  CodePoints bracket() {
    const bool negated = take("^");
    CodePoints out;
    while (!take("]")) {
      if (!more()) wrong("a [ that does not end");
      const CodePoints low = class_atom();
      if (text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]") && is_single(low)) {
        const size_t dash = at_++;
        if (!more()) wrong("a [ that does not end");
        const CodePoints high = class_atom();
        if (is_single(high)) {
          if (first(high) < first(low)) wrong("a range that ends before it begins");
          out.add(first(low), first(high));
          continue;
        }
        at_ = dash;  // a class of characters bounds nothing: the dash is one
      }
      out.add(low);
    }
    return negated ? out.complement() : out.intersect(CodePoints::all());
  }

  static bool is_single(const CodePoints& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
  }
  static uint32_t first(const CodePoints& set) { return set.ranges()[0].first; }

  CodePoints class_atom() {
    if (take("\\")) return escape(/*in_bracket=*/true);
    const uint32_t c = take_code_point();
    return one(c, c);
  }

  uint32_t hex(size_t n_digits) {
    uint32_t out = 0;
    for (size_t i = 0; i < n_digits; ++i) {
      const char c = more() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) wrong("a hexadecimal digit is missing");
      out = out * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return out;
  }

  uint32_t unicode_escape() {
    if (take("{")) {
      uint32_t out = 0;
      while (!take("}")) {
        out = out * 16 + hex(1);
        if (out > kLastCodePoint) wrong("no such character");
      }
      return out;
    }
    const uint32_t high = hex(4);
    if (high >= kFirstSurrogate && high <= 0xdbff && take("\\u")) {
      const uint32_t low = hex(4);
      if (low < 0xdc00 || low > kLastSurrogate) wrong("half of a surrogate pair");
      return 0x10000 + ((high - kFirstSurrogate) << 10) + (low - 0xdc00);
    }
    return high;
  }

  CodePoints escape(bool in_bracket) {
    if (!more()) wrong("a \\ at the end");
    const char c = text_[at_++];
    uint32_t single = 0;
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 't':
        single = '\t';
        break;
      case 'n':
        single = '\n';
        break;
      case 'r':
        single = '\r';
        break;
      case 'v':
        single = '\v';
        break;
      case 'f':
        single = '\f';
        break;
      case 'x':
        single = hex(2);
        break;
      case 'u':
        single = unicode_escape();
        break;
      case '0':
        if (more() && peek() >= '0' && peek() <= '9') wrong("an octal escape is not supported");
        break;
      case 'b':
        if (!in_bracket) wrong("a word boundary is not supported");
        single = '\b';
        break;
      default:
        if (c >= '1' && c <= '9') wrong("a back reference is not supported");
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) wrong("an escape that is not supported");
        --at_;
        single = take_code_point();
    }
    return one(single, single);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

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
  uint32_t write(const Expression& e, uint32_t from) {
    switch (e.kind) {
      case Expression::Kind::Class: {
        const uint32_t to = add();
        states[from].characters = class_id(e.characters);
        states[from].next = to;
        return to;
      }
      case Expression::Kind::Begin:
      case Expression::Kind::End: {
        const uint32_t to = add();
        link(from, to, e.kind == Expression::Kind::Begin ? Empty::AtBegin : Empty::AtEnd);
        return to;
      }
      case Expression::Kind::Sequence:
        for (const Expression& part : e.parts) from = write(part, from);
        return from;
      case Expression::Kind::Choice: {
        const uint32_t end = add();
        for (const Expression& part : e.parts) {
          const uint32_t begin = add();
          link(from, begin);
          link(write(part, begin), end);
        }
        return end;
      }
      case Expression::Kind::Repeat:
        return write_repeat(e, from);
    }
    return from;
  }

  std::vector<State> states;

 private:
  uint32_t write_repeat(const Expression& e, uint32_t from) {
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

CodePoints CodePoints::all() {
  CodePoints out;
  out.ranges_ = {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCodePoint}};
  return out;
}

void CodePoints::add(uint32_t low, uint32_t high) {
  // The ranges that touch it become one with it.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                                      [](const Range& r, uint32_t value) { return r.second + 1 < value; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= high + 1; ++end) {
    low = std::min(low, end->first);
    high = std::max(high, end->second);
  }
  ranges_.insert(ranges_.erase(begin, end), {low, high});
}

void CodePoints::add(const CodePoints& other) {
  for (const Range& r : other.ranges_) add(r.first, r.second);
}

CodePoints CodePoints::complement() const {
  CodePoints out;
  uint32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kLastCodePoint) out.ranges_.emplace_back(next, kLastCodePoint);
  return out.intersect(all());
}

CodePoints CodePoints::intersect(const CodePoints& other) const {
  CodePoints out;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const uint32_t low = std::max(ranges_[i].first, other.ranges_[j].first);
    const uint32_t high = std::min(ranges_[i].second, other.ranges_[j].second);
    if (low <= high) out.ranges_.emplace_back(low, high);
    if (ranges_[i].second < other.ranges_[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

Regex::Regex(std::string_view pattern) {
  const Expression expression = Parser(pattern).parse();
  Steps steps(classes_);
  const uint32_t anything = steps.class_id(CodePoints::all());
  // Anything in front, then the expression, then anything behind.
  const uint32_t front = steps.add();
  const uint32_t begin = steps.add();
  steps.link(front, begin);
  steps.states[front].characters = anything;
  steps.states[front].next = front;
  const uint32_t end = steps.write(expression, begin);
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
