#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.h"
#include "constrain/regex.h"
#include "tokenizer/unicode.h"

namespace redlite::constrain {
namespace {

/// Writes characters as bytes. Nodes in front of the same node are shared.
class CharacterWriter {
 public:
  CharacterWriter(GrammarBuilder& b, Writing writing) : b_(b), writing_(writing) {}

  /// Any one of the characters.
  NodeId any_of(const CodePoints& characters, NodeId next) {
    auto key = std::pair(characters.ranges(), next);
    if (const auto known = classes_.find(key); known != classes_.end()) return known->second;
    const NodeId out = write(characters, next);
    classes_.emplace(std::move(key), out);
    return out;
  }

 private:
  NodeId write(const CodePoints& characters, NodeId next) {
    std::vector<NodeId> choices;
    const bool single =
        characters.ranges().size() == 1 && characters.ranges()[0].first == characters.ranges()[0].second;
    CodePoints plain = characters;
    if (writing_ == Writing::Json) {
      constexpr std::array<std::pair<uint32_t, char>, 7> kEscapes = {
          {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};
      std::vector<NodeId> escapes;
      for (const auto& [character, letter] : kEscapes) {
        if (contains(characters, character)) escapes.push_back(range(letter, letter, next));
      }
      if (!escapes.empty()) choices.push_back(range('\\', '\\', b_.any_of(escapes)));
      CodePoints unescaped;
      unescaped.add(0x20, '"' - 1);
      unescaped.add('"' + 1, '\\' - 1);
      unescaped.add('\\' + 1, 0x10ffff);
      plain = plain.intersect(unescaped);
    } else if (!single) {
      CodePoints tag;
      tag.add('<', '<');
      plain = plain.intersect(tag.complement());
    }
    plain = plain.intersect(CodePoints::all());
    for (const auto& [low, high] : plain.ranges()) utf8(low, high, next, choices);
    return b_.any_of(choices);
  }

  static bool contains(const CodePoints& set, uint32_t c) {
    return std::any_of(set.ranges().begin(), set.ranges().end(),
                       [c](const auto& r) { return r.first <= c && c <= r.second; });
  }

  NodeId range(int low, int high, NodeId next) {
    const auto key = std::tuple(low, high, next);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const NodeId out = b_.byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(high), next);
    known_.emplace(key, out);
    return out;
  }

  /// Cut where the number of bytes changes, then into runs whose bytes vary independently of each other.
  void utf8(uint32_t low, uint32_t high, NodeId next, std::vector<NodeId>& choices) {
    for (const uint32_t last : {0x7fu, 0x7ffu, 0xffffu}) {
      if (low <= last && last < high) {
        utf8(low, last, next, choices);
        low = last + 1;
      }
    }
    for (int n = 1; n < 4; ++n) {
      const uint32_t mask = (1u << (6 * n)) - 1;  // of the last n bytes
      if (low < 0x80 || (low & ~mask) == (high & ~mask)) continue;
      if ((low & mask) != 0) {
        utf8(low, low | mask, next, choices);
        utf8((low | mask) + 1, high, next, choices);
        return;
      }
      if ((high & mask) != mask) {
        utf8(low, (high & ~mask) - 1, next, choices);
        utf8(high & ~mask, high, next, choices);
        return;
      }
    }
    std::string first, last;
    tokenizer::append_utf8(first, low);
    tokenizer::append_utf8(last, high);
    NodeId out = next;
    for (size_t i = first.size(); i-- > 0;)
      out = range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]), out);
    choices.push_back(out);
  }

  GrammarBuilder& b_;
  const Writing writing_;
  std::map<std::tuple<int, int, NodeId>, NodeId> known_;
  std::map<std::pair<std::vector<CodePoints::Range>, NodeId>, NodeId> classes_;
};

/// All expressions at once: a place is a state of each of them, and how many characters came.
class ProductWriter {
 public:
  ProductWriter(GrammarBuilder& b, std::span<const Regex> expressions, uint32_t min, uint32_t max,
                Writing writing, NodeId next)
      : b_(b), expressions_(expressions), min_(min), max_(max), characters_(b, writing), next_(next) {}

  NodeId write() {
    const NodeId first = node({std::vector<uint32_t>(expressions_.size()), 0});
    for (size_t i = 0; i < todo_.size(); ++i) {
      const auto [place, reserved] = todo_[i];
      std::vector<NodeId> choices;
      if (place.count >= min_ && accepts(place)) choices.push_back(next_);
      if (place.count < max_) add_moves(place, 0, CodePoints::all(), {}, choices);
      b_.set(reserved, b_.any_of(choices));
    }
    return first;
  }

 private:
  struct Place {
    std::vector<uint32_t> states;
    uint32_t count;
    bool operator<(const Place& other) const {
      return std::tie(count, states) < std::tie(other.count, other.states);
    }
  };

  NodeId node(Place place) {
    const auto known = known_.find(place);
    if (known != known_.end()) return known->second;
    const NodeId out = b_.reserve();
    known_.emplace(place, out);
    todo_.emplace_back(std::move(place), out);
    return out;
  }

  bool accepts(const Place& place) const {
    for (size_t i = 0; i < expressions_.size(); ++i)
      if (!expressions_[i].states()[place.states[i]].accepts) return false;
    return true;
  }

  void add_moves(const Place& place, size_t i, const CodePoints& so_far, std::vector<uint32_t> to,
                 std::vector<NodeId>& choices) {
    if (i == expressions_.size()) {
      // Without a most, only whether the least is reached matters; without either, nothing.
      const uint32_t count = max_ == kNoLimit ? std::min(place.count + 1, min_) : place.count + 1;
      choices.push_back(characters_.any_of(so_far, node({std::move(to), count})));
      return;
    }
    to.push_back(0);
    for (const Regex::Edge& edge : expressions_[i].states()[place.states[i]].edges) {
      const CodePoints both = so_far.intersect(expressions_[i].classes()[edge.characters]);
      if (both.empty()) continue;
      to.back() = edge.to;
      add_moves(place, i + 1, both, to, choices);
    }
  }

  GrammarBuilder& b_;
  const std::span<const Regex> expressions_;
  const uint32_t min_, max_;
  CharacterWriter characters_;
  const NodeId next_;
  std::map<Place, NodeId> known_;
  std::vector<std::pair<Place, NodeId>> todo_;
};

}  // namespace

NodeId matching_all(GrammarBuilder& b, std::span<const Regex> expressions, uint32_t min, uint32_t max,
                    Writing writing, NodeId next) {
  if (max < min) return b.never();
  return ProductWriter(b, expressions, min, max, writing, next).write();
}

}  // namespace redlite::constrain
