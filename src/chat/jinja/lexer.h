#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace redlite::chat::jinja {

struct Token {
  enum class Kind {
    Data,
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End
  };

  Kind kind = Kind::End;
  uint32_t offset = 0;  ///< in the normalised source
  std::string text;     ///< of data, name, string (unescaped) or operator
  int64_t integer = 0;
  double number = 0;
};

/// A Failure with its place.
class SyntaxFailure : public std::runtime_error {
 public:
  SyntaxFailure(uint32_t where, const std::string& reason) : std::runtime_error(reason), offset(where) {}
  uint32_t offset;
};

/// The source as Jinja reads it: line ends are "\n", and one at the very end is dropped.
std::string normalise_source(std::string_view source);

/// Cuts a normalised source into tokens, with white space controlled as transformers does (trim_blocks and
/// lstrip_blocks: a block tag takes the blanks before it on its line and the line end behind it). Comments
/// are gone, raw blocks are data. The last token is End. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace redlite::chat::jinja
