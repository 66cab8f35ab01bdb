#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace redlite::constrain {

using NodeId = uint32_t;

inline constexpr uint32_t kNoLimit = UINT32_MAX;

/// A step of a grammar. Together they are a pushdown automaton over bytes: Call and Loop push where to go on,
/// Return pops it.
struct Node {
  enum class Kind : uint8_t {
    Bytes,   ///< one byte of low..high, then `next`
    String,  ///< min..max characters of a JSON string and the quote that closes it, then `next`
    Split,   ///< `next` or `other`, without a byte
    Call,    ///< `other`, up to its Return, then `next`
    Loop,    ///< min..max times `other`, each up to its Return, then `next`
    Return,  ///< back to who called; the end, if nobody did
    Never,   ///< nothing
  };
  Kind kind = Kind::Never;
  uint8_t low = 0;
  uint8_t high = 0;
  uint8_t state = 0;  ///< of StringAutomaton, in which a String begins
  NodeId next = 0;
  NodeId other = 0;
  uint32_t min = 0;
  uint32_t max = 0;  ///< or kNoLimit
};

/// What an answer must look like, byte for byte. Immutable and safe to share between threads.
class Grammar {
 public:
  Grammar(std::vector<Node> nodes, NodeId start);

  const Node& node(NodeId id) const { return nodes_[id]; }
  NodeId start() const { return start_; }

  /// Whether something finite leads from the node to its Return. What does not is never entered, so that no
  /// way through the grammar ends in nothing.
  bool productive(NodeId id) const { return productive_[id] != 0; }

 private:
  void find_productive();

  std::vector<Node> nodes_;
  NodeId start_;
  std::vector<uint8_t> productive_;
};

/// Writes grammars from their ends: each function takes the node that comes next and returns the one that
/// comes first.
///
/// Every one but Return's user must be given bodies (of loops and calls) that take at least one byte.
class GrammarBuilder {
 public:
  /// Throws Error when a grammar grows larger.
  static constexpr size_t kMaxNodes = 400'000;

  GrammarBuilder();

  NodeId finish_rule() { return kReturn; }
  NodeId never() { return kNever; }
  NodeId byte_range(uint8_t low, uint8_t high, NodeId next);
  NodeId literal(std::string_view text, NodeId next);
  NodeId either(NodeId first, NodeId second);
  NodeId any_of(std::span<const NodeId> choices);
  NodeId optional(NodeId first, NodeId next) { return either(first, next); }
  NodeId call(NodeId rule, NodeId next);
  /// `body` ends in finish_rule().
  NodeId loop(NodeId body, uint32_t min, uint32_t max, NodeId next);
  /// min..max characters of a JSON string and the closing quote. `state`: of StringAutomaton.
  NodeId string_rest(uint32_t min, uint32_t max, NodeId next, uint8_t state = 0);
  /// Any bytes up to and with the first `end` (not empty), which comes only there.
  NodeId until(std::string_view end, NodeId next);
  /// until() that may also stop before `end`, at `stop`.
  NodeId until_or_stop(std::string_view end, NodeId next, NodeId stop);

  /// A node to be set() later: for what refers to itself.
  NodeId reserve();
  void set(NodeId reserved, NodeId first);

  size_t size() const { return nodes_.size(); }
  /// Takes back everything written since size() was this; nothing older may lead there.
  void forget(size_t size) { nodes_.resize(size); }

  /// A rule that can begin with itself, which no automaton could follow; nothing if there is none.
  std::optional<NodeId> find_left_recursion() const;

  Grammar finish(NodeId start) &&;

 private:
  static constexpr NodeId kReturn = 0, kNever = 1;
  NodeId add(const Node& node);

  std::vector<Node> nodes_;
};

}  // namespace redlite::constrain
