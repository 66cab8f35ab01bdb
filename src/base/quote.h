#pragma once

#include <string>
#include <string_view>

namespace redlite {

/// Text from a file or a request made safe to print in a message: in single quotes, control characters and
/// bytes that are not printable ASCII escaped as \xNN, cut to `limit` characters with "..." behind.
std::string quote(std::string_view text, size_t limit = 64);

/// Text with names in it that users chose, as one line that a terminal can show: control characters and bytes
/// that are no UTF-8 are escaped as \xNN, the rest stays as it is.
std::string one_line(std::string_view text);

}  // namespace redlite
