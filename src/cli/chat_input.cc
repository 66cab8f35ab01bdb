#include "cli/chat_input.h"

#include <string_view>

namespace redlite::cli {

std::optional<std::string> MessageReader::read() {
  constexpr std::string_view kQuotes = "\"\"\"";
  std::optional<std::string> line = next_line_(true);
  if (!line) return std::nullopt;
  if (line->starts_with(kQuotes)) {
    std::string text = line->substr(kQuotes.size());
    while (!text.ends_with(kQuotes)) {
      line = next_line_(false);
      if (!line) return text;
      if (!text.empty()) text += '\n';
      text += *line;
    }
    text.resize(text.size() - kQuotes.size());
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }
  std::string text = std::move(*line);
  while (text.ends_with('\\')) {
    text.back() = '\n';
    line = next_line_(false);
    if (!line) break;
    text += *line;
  }
  return text;
}

}  // namespace redlite::cli
