#pragma once

#include <string>
#include <string_view>

#include "dialogue/dialogue.h"

namespace redlite::cli {

/// Text made fit for a terminal: control characters other than line breaks and tabs, which could do anything
/// there, are left out.
std::string fit_for_terminal(std::string_view text);

/// Writes an answer to stdout as it comes. On a terminal reasoning is dim, or a word stands for it as long as
/// it lasts; elsewhere it is left out unless wanted, and then stands between <think> and </think>.
class ChatPrinter {
 public:
  ChatPrinter(bool terminal, bool show_reasoning);

  void put(dialogue::Part part, std::string_view text);
  /// Ends the answer's last line.
  void finish();

 private:
  void write(std::string_view text);
  void begin_reasoning();
  void end_reasoning();

  bool terminal_, escapes_, show_;
  bool reasoning_ = false;
  bool at_line_start_ = false;
};

}  // namespace redlite::cli
