#include "cli/chat_printer.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace redlite::cli {

std::string fit_for_terminal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters, too.
    const bool c1 = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c1) {
      ++i;
    } else if ((c >= 32 && c != 127) || c == '\n' || c == '\t') {
      out.push_back(text[i]);
    }
  }
  return out;
}

ChatPrinter::ChatPrinter(bool terminal, bool show_reasoning) : terminal_(terminal), show_(show_reasoning) {
  const char* kind = std::getenv("TERM");
  escapes_ = terminal && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

void ChatPrinter::write(std::string_view text) {
  if (text.empty()) return;
  const std::string fit = terminal_ ? fit_for_terminal(text) : std::string(text);
  if (std::fwrite(fit.data(), 1, fit.size(), stdout) != fit.size())
    fail("standard output: {}", std::strerror(errno));
  if (!fit.empty()) at_line_start_ = fit.back() == '\n';
}

void ChatPrinter::begin_reasoning() {
  reasoning_ = true;
  if (escapes_) {
    std::fputs(show_ ? "\x1b[2m" : "\x1b[2m(thinking)\x1b[0m", stdout);
  } else if (show_) {
    write("<think>\n");
  }
}

void ChatPrinter::end_reasoning() {
  if (!std::exchange(reasoning_, false)) return;
  if (escapes_ && !show_) {
    std::fputs("\r\x1b[K", stdout);
    return;
  }
  if (!show_) return;
  if (!at_line_start_) write("\n");
  if (escapes_) {
    std::fputs("\x1b[0m", stdout);
  } else {
    write("</think>");
  }
  write("\n");
}

void ChatPrinter::put(dialogue::Part part, std::string_view text) {
  if (part == dialogue::Part::Reasoning) {
    if (!reasoning_) begin_reasoning();
    if (show_) write(text);
  } else {
    end_reasoning();
    write(text);
  }
  if (std::fflush(stdout) != 0) fail("standard output: {}", std::strerror(errno));
}

void ChatPrinter::finish() {
  end_reasoning();
  if (!at_line_start_) std::fputs("\n", stdout);
  if (std::fflush(stdout) != 0) fail("standard output: {}", std::strerror(errno));
}

}  // namespace redlite::cli
