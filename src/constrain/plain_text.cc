#include "constrain/plain_text.h"

#include <algorithm>
#include <string>

#include "constrain/string_automaton.h"

namespace redlite::constrain {

PlainText::PlainText() {
  for (auto& row : table_) row.fill(kDead);
}

void PlainText::allow(uint8_t state, std::string_view bytes, uint8_t to) {
  for (const char byte : bytes) table_[state][static_cast<uint8_t>(byte)] = to;
}

bool PlainText::contains(std::string_view text) const {
  uint8_t state = 0;
  return std::all_of(text.begin(), text.end(), [&](char byte) {
    state = step(state, static_cast<uint8_t>(byte));
    return state != kDead;
  });
}

std::span<const PlainText> PlainText::kinds() {
  static const std::array<PlainText, kKinds> kAll = make_kinds();
  return kAll;
}

std::array<PlainText, PlainText::kKinds> PlainText::make_kinds() {
  const std::string lower = "abcdefghijklmnopqrstuvwxyz", digits = "0123456789";
  const std::string letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", name = letters + digits + "_";
  // Without what strings escape and tags begin with.
  std::string ascii;
  for (char c = ' '; c <= '~'; ++c)
    if (std::string_view("\"\\<>").find(c) == std::string_view::npos) ascii += c;
  std::string no_digits = ascii;
  std::erase_if(no_digits, [&](char c) { return digits.find(c) != std::string::npos; });

  std::array<PlainText, kKinds> out = {PlainText(), PlainText(), PlainText(), PlainText(), PlainText(),
                                       PlainText(), PlainText(), PlainText(), PlainText()};
  size_t n = 0;
  for (const std::string& word : {lower, letters, name}) {
    out[n++].allow(0, word, 0);
    out[n].allow(0, " ", 1);
    out[n++].allow(1, word, 1);
  }
  out[n++].allow(0, no_digits, 0);
  out[n++].allow(0, ascii, 0);

  // Any characters: those beyond ASCII as in a JSON string, but for U+2028 and U+2029, which "." does not
  // match.
  PlainText& any = out[n];
  any.allow(0, no_digits, 0);
  constexpr uint8_t kFirstOwn = 8, kAfterE2 = kFirstOwn, kAfterE280 = kFirstOwn + 1;
  for (uint8_t state = 0; state < kFirstOwn; ++state) {
    for (unsigned byte = 0x80; byte < 256; ++byte) {
      const uint8_t next = StringAutomaton::step(state, static_cast<uint8_t>(byte));
      if (next < kFirstOwn) any.table_[state][byte] = next;
    }
  }
  const uint8_t one_more = any.table_[any.table_[0][0xe1]][0x80];
  any.table_[0][0xe2] = kAfterE2;
  for (unsigned byte = 0x80; byte < 0xc0; ++byte) {
    any.table_[kAfterE2][byte] = byte == 0x80 ? kAfterE280 : one_more;
    if (byte != 0xa8 && byte != 0xa9) any.table_[kAfterE280][byte] = 0;
  }
  return out;
}

}  // namespace redlite::constrain
