#include "base/quote.h"

#include <gtest/gtest.h>

namespace redlite {
namespace {

TEST(Quote, EscapesWhatCouldReachTheTerminal) {
  EXPECT_EQ(quote("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(quote("\x1b[31m\n\\\x7f\xc3\xa9"), R"('\x1b[31m\x0a\x5c\x7f\xc3\xa9')");
  EXPECT_EQ(quote(std::string_view("\0", 1)), R"('\x00')");
}

TEST(OneLine, KeepsWhatATerminalCanShow) {
  for (const char* text : {"", "model.gguf: cannot open", "M\xc3\xa4rchen", "\xe7\x8b\x90",
                           "\xf0\x9f\xa6\x8a", "\xc2\xa0", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "a\\b"})
    EXPECT_EQ(one_line(text), text);
}

TEST(OneLine, EscapesControlCharactersAndWhatIsNoUtf8) {
  EXPECT_EQ(one_line("a\nb\x1b[31m\t\x7f"), R"(a\x0ab\x1b[31m\x09\x7f)");
  EXPECT_EQ(one_line(std::string_view("\0", 1)), R"(\x00)");
  EXPECT_EQ(one_line("\xc2\x9b"), R"(\xc2\x9b)") << "a control character of two bytes";
  EXPECT_EQ(one_line("\xff\xfe x"), R"(\xff\xfe x)");
  EXPECT_EQ(one_line("\xc3"), R"(\xc3)") << "cut short";
  EXPECT_EQ(one_line("\xc0\xaf"), R"(\xc0\xaf)") << "longer than need be";
  EXPECT_EQ(one_line("\xed\xa0\x80"), R"(\xed\xa0\x80)") << "half of a surrogate pair";
  EXPECT_EQ(one_line("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)") << "beyond the last code point";
  EXPECT_EQ(one_line("\xe2\x82\xe2\x82\xac"), "\\xe2\\x82\xe2\x82\xac")
      << "an unfinished one, then a whole one";
}

TEST(Quote, CutsLongText) {
  EXPECT_EQ(quote(std::string(64, 'a')), "'" + std::string(64, 'a') + "'");
  EXPECT_EQ(quote(std::string(65, 'a')), "'" + std::string(64, 'a') + "...'");
  EXPECT_EQ(quote("abc", 2), "'ab...'");
}

}  // namespace
}  // namespace redlite
