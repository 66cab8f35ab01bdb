#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace redlite::tokenizer {

/// What pre-tokenizers tell apart. Private-use, unassigned and all other code points are Other.
enum class CharClass : uint8_t { Other, Letter, Mark, Number, Space };

/// The class in Unicode 15.1, whatever the machine's libraries know: the same text gives the same tokens
/// everywhere.
CharClass classify(uint32_t code_point);

struct CodePoint {
  uint32_t value;
  uint32_t bytes;  ///< that it takes in the text, 1 to 4
};

/// The character at `offset` (< text.size()). As llama.cpp reads text: surrogates and overlong forms are
/// characters, a byte that starts none is U+FFFD by itself.
CodePoint decode_utf8(std::string_view text, size_t offset);

void append_utf8(std::string& out, uint32_t code_point);

/// The text with every U+FFFD that decode_utf8() reports written out and overlong forms shortened. Returns
/// `text` itself when there is nothing to repair, otherwise a view of `storage`.
std::string_view repair_utf8(std::string_view text, std::string& storage);

/// The length of the longest prefix of `bytes` that can start a well-formed UTF-8 character, at most that
/// character (Unicode's "maximal subpart"); `complete` says whether it is the whole character. 0 if the first
/// byte can start none, or `bytes` is empty.
size_t well_formed_prefix(std::string_view bytes, bool& complete);

}  // namespace redlite::tokenizer
