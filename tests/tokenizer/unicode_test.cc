#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace redlite::tokenizer {
namespace {

using namespace std::string_literals;

TEST(Unicode, ClassesAreThoseOfVersion151) {
  EXPECT_EQ(classify('a'), CharClass::Letter);
  EXPECT_EQ(classify('_'), CharClass::Other);
  EXPECT_EQ(classify(0x301), CharClass::Mark);      // combining acute
  EXPECT_EQ(classify(0xB2), CharClass::Number);     // superscript two
  EXPECT_EQ(classify(0x0663), CharClass::Number);   // Arabic digit three
  EXPECT_EQ(classify(0x4E2D), CharClass::Letter);   // Han
  EXPECT_EQ(classify(0xE000), CharClass::Other);    // private use
  EXPECT_EQ(classify(0x11F04), CharClass::Letter);  // Kawi, new in 15.0
  EXPECT_EQ(classify(0x2EBF0), CharClass::Letter);  // Han extension I, new in 15.1
  EXPECT_EQ(classify(0x1C89), CharClass::Other);    // assigned in 16.0
  EXPECT_EQ(classify(0x10FFFF), CharClass::Other);
  EXPECT_EQ(classify(0x110000), CharClass::Other);
}

TEST(Unicode, WhiteSpaceIsUnicodes) {
  for (const uint32_t c : {0x9u, 0xAu, 0xBu, 0xCu, 0xDu, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2000u, 0x200Au,
                           0x2028u, 0x2029u, 0x202Fu, 0x205Fu, 0x3000u}) {
    EXPECT_EQ(classify(c), CharClass::Space) << std::hex << c;
  }
  for (const uint32_t c : {0x1Cu, 0x1Fu, 0x180Eu, 0x200Bu, 0x2060u, 0xFEFFu}) {
    EXPECT_EQ(classify(c), CharClass::Other) << std::hex << c;
  }
}

TEST(Unicode, EveryCodePointSurvivesARoundTrip) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(text, c);
    const CodePoint decoded = decode_utf8(text, 0);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(decoded.bytes, text.size());
  }
}

TEST(Unicode, RepairLeavesGoodTextWhereItIs) {
  std::string storage;
  const std::string text = "plain, \u4E2D\u6587, \U0001F469\0 and a surrogate \xED\xA0\x80"s;
  const std::string_view repaired = repair_utf8(text, storage);
  EXPECT_EQ(repaired.data(), text.data());
  EXPECT_EQ(repaired.size(), text.size());
}

TEST(Unicode, RepairReplacesByteByByteAndShortensOverlongForms) {
  const auto repair = [](std::string text) {
    std::string storage;
    return std::string(repair_utf8(text, storage));
  };
  EXPECT_EQ(repair("a\xFF"
                   "b"),
            "a\uFFFD"
            "b");
  EXPECT_EQ(repair("\xE4\xB8"), "\uFFFD\uFFFD");                      // cut off
  EXPECT_EQ(repair("\xE4\xB8z"), "\uFFFD\uFFFDz");                    // interrupted
  EXPECT_EQ(repair("\xC0\x80|"), "\0|"s);                             // overlong NUL
  EXPECT_EQ(repair("\xF0\x80\x80\xAF"), "/");                         // overlong slash
  EXPECT_EQ(repair("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(repair("\x80"), "\uFFFD");
}

TEST(Unicode, WellFormedPrefixes) {
  const auto check = [](std::string_view bytes, size_t length, bool whole) {
    bool complete = !whole;
    EXPECT_EQ(well_formed_prefix(bytes, complete), length);
    EXPECT_EQ(complete, whole);
  };
  check("", 0, false);
  check("a", 1, true);
  check("\xC3\xA9z", 2, true);
  check("\xC3", 1, false);
  check("\xC1\x80", 0, false);      // only overlong forms begin so
  check("\xE0\x80\x80", 1, false);  // overlong
  check("\xED\xA0\x80", 1, false);  // surrogate
  check("\xF0\x9F\x91", 3, false);
  check("\xF0\x9F\x91\xA9", 4, true);
  check("\xF4\x90\x80\x80", 1, false);
  check("\xF5\x80\x80\x80", 0, false);
  check("\x80", 0, false);
}

}  // namespace
}  // namespace redlite::tokenizer
