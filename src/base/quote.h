#pragma once

#include <string>
#include <string_view>

namespace redlite {

/// Text from a file or a request made safe to print in a message: in single quotes, control characters and
/// bytes that are not printable ASCII escaped as \xNN, cut to `limit` characters with "..." behind.
std::string quote(std::string_view text, size_t limit = 64);

}  // namespace redlite
