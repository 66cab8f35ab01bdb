#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redlite::session {

/// Finds the first of some strings in a text that comes in pieces, and holds back what might be its
/// beginning.
class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& strings) : strings_(strings) {}

  /// The text that is surely before any of them, now that `more` has come. Nothing is to be pushed after one
  /// was found.
  std::string push(std::string_view more);
  /// What is still held back, at the end of the text.
  std::string finish();

  bool found() const { return found_ != nullptr; }
  const std::string& which() const { return *found_; }

 private:
  const std::vector<std::string>& strings_;
  std::string held_;
  const std::string* found_ = nullptr;
};

}  // namespace redlite::session
