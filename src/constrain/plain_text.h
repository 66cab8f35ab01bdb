#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace redlite::constrain {

/// Plain text of one kind, such as words or ASCII without digits, byte by byte; a text may break off
/// anywhere, also within a character. Most of a vocabulary is plain text, and most of what a grammar lets
/// through in a string is all plain text of some kinds: whether it is can be seen without looking at a token
/// (see Filter).
class PlainText {
 public:
  static constexpr uint8_t kDead = 0xff;

  /// The next state; a text begins in state 0.
  uint8_t step(uint8_t state, uint8_t byte) const { return table_[state][byte]; }
  bool contains(std::string_view text) const;

  /// All kinds; where one is part of another it comes first.
  static std::span<const PlainText> kinds();
  static constexpr size_t kKinds = 9;
  static constexpr size_t kStates = 10;

 private:
  static std::array<PlainText, kKinds> make_kinds();
  PlainText();
  void allow(uint8_t state, std::string_view bytes, uint8_t to);

  std::array<std::array<uint8_t, 256>, kStates> table_;
};

}  // namespace redlite::constrain
