#pragma once

#include <memory>
#include <string>

namespace redlite::cli {

/// Lines typed at a terminal, edited with libedit, remembered in a file that only its owner can read.
/// Alt-Enter begins a new line within one, and so does what is pasted; Ctrl-C gives up the line.
class LineEditor {
 public:
  enum class Outcome : unsigned char { Line, GivenUp, End };

  /// `history_file` may be empty. A file that cannot be read or written is done without.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Reads one into `line`, without the line break.
  Outcome read(const std::string& prompt, std::string& line);
  /// Lines entered are found again with the arrow keys, also next time.
  void remember(const std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::cli
