#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "constrain/code_points.h"
#include "constrain/grammar.h"

namespace redlite::constrain {

/// A regular expression of ECMA-262 as an automaton over code points without empty steps; a text matches if
/// any part of it does, unless ^ and $ say otherwise. Without look-around, back references, word boundaries
/// and \p.
class Regex {
 public:
  /// Throws Error that says what is not supported, or wrong, and where in the pattern.
  explicit Regex(std::string_view pattern);

  struct Edge {
    uint32_t characters;  ///< in classes()
    uint32_t to;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepts = false;
  };
  /// The first is where a text begins.
  const std::vector<State>& states() const { return states_; }
  const std::vector<CodePoints>& classes() const { return classes_; }

 private:
  std::vector<State> states_;
  std::vector<CodePoints> classes_;
};

/// How characters are written.
enum class Writing : uint8_t {
  Json,   ///< as in a JSON string; control characters only those that have a short escape
  Plain,  ///< as they are; without '<' where a class of characters has it among others
};

/// A text of min..max characters (kNoLimit) that all the expressions match, then `next` (with Json: a closing
/// quote is not written). Throws Error when it becomes too large.
NodeId matching_all(GrammarBuilder& b, std::span<const Regex> expressions, uint32_t min, uint32_t max,
                    Writing writing, NodeId next);

/// A pattern for a format of JSON Schema that allows only what is valid; empty for a format that is not
/// known.
std::string_view format_pattern(std::string_view format);

}  // namespace redlite::constrain
