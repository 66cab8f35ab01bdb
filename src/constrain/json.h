#pragma once

#include <string_view>

#include "constrain/grammar.h"

namespace redlite::constrain {

/// Pieces of JSON, written in front of what comes next.
///
/// Between members and elements a blank, or a line break and at most 32 blanks or tabs, may stand; more would
/// let a model write blanks for ever.
class JsonPieces {
 public:
  explicit JsonPieces(GrammarBuilder& builder) : b_(&builder) {}

  NodeId blanks(NodeId next);
  /// The colon behind a key, and maybe a blank.
  NodeId colon(NodeId next);
  /// A text as a JSON string.
  NodeId quoted(std::string_view text, NodeId next);
  NodeId string(uint32_t min, uint32_t max, NodeId next);
  /// A string that is none of these, as a key.
  NodeId string_other_than(std::span<const std::string_view> texts, NodeId next);
  /// [item, ...]; `item` is a rule.
  NodeId array_of(NodeId item, uint32_t min, uint32_t max, NodeId next);
  /// {member, ...}; `member` is a rule.
  NodeId object_of(NodeId member, uint32_t min, uint32_t max, NodeId next);

  NodeId any_value(NodeId next);
  NodeId any_object(NodeId next);

 private:
  NodeId list_of(char open, char close, NodeId element, uint32_t min, uint32_t max, NodeId next);
  void make_rules();

  GrammarBuilder* b_;
  NodeId any_rule_ = 0;
  NodeId member_rule_ = 0;
};

/// A whole number from low to high, in at most 18 digits.
NodeId integer_between(GrammarBuilder& b, int64_t low, int64_t high, NodeId next);
inline constexpr int64_t kMaxInteger = 999'999'999'999'999'999;

struct NumberRange {
  double low = 0, high = 0;
  bool has_low = false, has_high = false;
  bool above_low = false, below_high = false;  ///< and not equal to them
  int fraction_digits = -1;                    ///< at most; -1: as many as a double has
};

/// A number; with an exponent only if it is free. Throws Error for limits of more than 18 digits before the
/// point, or 30 behind it.
NodeId number_between(GrammarBuilder& b, const NumberRange& range, NodeId next);

}  // namespace redlite::constrain
