#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace redlite::constrain {

/// The inside of a JSON string, byte by byte: well-formed UTF-8 and escapes of which every surrogate has its
/// partner. A character, however it is written, counts when its first byte has come.
class StringAutomaton {
 public:
  static constexpr uint8_t kStart = 0;  ///< between characters
  static constexpr int kStates = 20;
  static constexpr uint8_t kDead = 0xff;
  static constexpr uint8_t kEnd = 0xfe;  ///< the closing quote

  /// The next state, kDead or kEnd.
  static uint8_t step(uint8_t state, uint8_t byte) { return table()[state][byte]; }

  /// The bytes around `byte` that all lead to where it does.
  static std::pair<uint8_t, uint8_t> alike(uint8_t state, uint8_t byte);

  /// The state behind the first byte of a character that is written as UTF-8; kDead for one that starts none.
  static uint8_t after_first_byte(uint8_t byte) { return step(kStart, byte); }

 private:
  using Table = std::array<std::array<uint8_t, 256>, kStates>;
  static const Table& table();
};

}  // namespace redlite::constrain
