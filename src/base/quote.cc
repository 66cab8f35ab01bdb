#include "base/quote.h"

#include <fmt/format.h>

namespace redlite {
namespace {

/// Bytes of the printable character at the beginning of `text`; 0: there is none.
size_t printable_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  // By the table of well-formed UTF-8 (Unicode, 3.9); U+0080 to U+009F are control characters.
  unsigned low = 0x80, high = 0xbf;
  size_t length = 2;
  if (byte(0) >= 0xf0) {
    length = 4;
    if (byte(0) == 0xf0) low = 0x90;
    if (byte(0) == 0xf4) high = 0x8f;
  } else if (byte(0) >= 0xe0) {
    length = 3;
    if (byte(0) == 0xe0) low = 0xa0;
    if (byte(0) == 0xed) high = 0x9f;
  } else if (byte(0) == 0xc2) {
    low = 0xa0;
  }
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

}  // namespace

std::string quote(std::string_view text, size_t limit) {
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > limit ? "...'" : "'";
  return out;
}

std::string one_line(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = printable_length(text);
    if (length == 0) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    out += text.substr(0, length);
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

}  // namespace redlite
