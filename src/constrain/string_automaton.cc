#include "constrain/string_automaton.h"

#include <string_view>

namespace redlite::constrain {
namespace {

enum : uint8_t {
  kBetween = StringAutomaton::kStart,
  kOneMore,    // continuation bytes
  kTwoMore,    //
  kThreeMore,  //
  kAfterE0,    // not overlong
  kAfterED,    // no surrogate
  kAfterF0,    // not overlong
  kAfterF4,    // not above U+10FFFF
  kBackslash,
  kHex4,   // four hexadecimal digits
  kHex3,   // three, of no surrogate
  kHex2,   //
  kHex1,   //
  kHexD,   // the three behind D
  kHigh2,  // the last two of a high surrogate
  kHigh1,  //
  kLow,    // the partner: \u D [C-F] and two digits
  kLowU,   //
  kLowD,   //
  kLowC,   //
};
static_assert(kLowC + 1 == StringAutomaton::kStates);

}  // namespace

const StringAutomaton::Table& StringAutomaton::table() {
  static const Table kTable = [] {
    Table t{};
    for (auto& row : t) row.fill(kDead);
    const auto range = [&](uint8_t from, int low, int high, uint8_t to) {
      for (int b = low; b <= high; ++b) t[from][static_cast<size_t>(b)] = to;
    };
    const auto hex = [&](uint8_t from, uint8_t to) {
      range(from, '0', '9', to);
      range(from, 'a', 'f', to);
      range(from, 'A', 'F', to);
    };
    range(kBetween, 0x20, 0x7f, kBetween);
    t[kBetween]['"'] = kEnd;
    t[kBetween]['\\'] = kBackslash;
    range(kBetween, 0xc2, 0xdf, kOneMore);
    range(kBetween, 0xe1, 0xef, kTwoMore);
    range(kBetween, 0xf1, 0xf3, kThreeMore);
    t[kBetween][0xe0] = kAfterE0;
    t[kBetween][0xed] = kAfterED;
    t[kBetween][0xf0] = kAfterF0;
    t[kBetween][0xf4] = kAfterF4;
    range(kOneMore, 0x80, 0xbf, kBetween);
    range(kTwoMore, 0x80, 0xbf, kOneMore);
    range(kThreeMore, 0x80, 0xbf, kTwoMore);
    range(kAfterE0, 0xa0, 0xbf, kOneMore);
    range(kAfterED, 0x80, 0x9f, kOneMore);
    range(kAfterF0, 0x90, 0xbf, kTwoMore);
    range(kAfterF4, 0x80, 0x8f, kTwoMore);
    for (const char c : std::string_view("\"\\/bfnrt")) t[kBackslash][static_cast<uint8_t>(c)] = kBetween;
    t[kBackslash]['u'] = kHex4;
    hex(kHex4, kHex3);
    t[kHex4]['d'] = t[kHex4]['D'] = kHexD;
    hex(kHex3, kHex2);
    hex(kHex2, kHex1);
    hex(kHex1, kBetween);
    range(kHexD, '0', '7', kHex2);
    for (const char c : std::string_view("89abAB")) t[kHexD][static_cast<uint8_t>(c)] = kHigh2;
    hex(kHigh2, kHigh1);
    hex(kHigh1, kLow);
    t[kLow]['\\'] = kLowU;
    t[kLowU]['u'] = kLowD;
    t[kLowD]['d'] = t[kLowD]['D'] = kLowC;
    range(kLowC, 'c', 'f', kHex2);
    range(kLowC, 'C', 'F', kHex2);
    return t;
  }();
  return kTable;
}

std::pair<uint8_t, uint8_t> StringAutomaton::alike(uint8_t state, uint8_t byte) {
  const auto& row = table()[state];
  size_t first = byte, last = byte;
  while (first > 0 && row[first - 1] == row[byte]) --first;
  while (last < 255 && row[last + 1] == row[byte]) ++last;
  return {static_cast<uint8_t>(first), static_cast<uint8_t>(last)};
}

}  // namespace redlite::constrain
