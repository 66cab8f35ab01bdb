#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "constrain/code_points.h"

namespace redlite::constrain {

/// A regular expression as a tree.
struct RegexTree {
  enum class Kind : uint8_t { Class, Sequence, Choice, Repeat, Begin, End };
  Kind kind;
  CodePoints characters;  ///< of a Class
  std::vector<RegexTree> parts;
  uint32_t min = 0, max = 0;  ///< of a Repeat
};

/// Reads ECMA-262's syntax; throws Error as Regex does.
RegexTree parse_regex(std::string_view pattern);

}  // namespace redlite::constrain
