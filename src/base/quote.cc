#include "base/quote.h"

#include <fmt/format.h>

namespace redlite {

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

}  // namespace redlite
