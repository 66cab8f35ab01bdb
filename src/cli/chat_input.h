#pragma once

#include <functional>
#include <optional>
#include <string>

namespace redlite::cli {

/// Puts messages together from lines: a line that ends in a backslash goes on in the next, and """ begins a
/// message of several lines that ends with the next """.
class MessageReader {
 public:
  /// Gives the next line, or nullopt at the end of the input; `first`: a message begins with it.
  using NextLine = std::function<std::optional<std::string>(bool first)>;

  explicit MessageReader(NextLine next_line) : next_line_(std::move(next_line)) {}

  /// The next message or command, maybe empty; nullopt at the end.
  std::optional<std::string> read();

 private:
  NextLine next_line_;
};

}  // namespace redlite::cli
