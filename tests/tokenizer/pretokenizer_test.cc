#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace redlite::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(Pretokenizer kind, std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = word_end(kind, text, begin);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}
std::vector<std::string> qwen2(std::string_view text) {
  return split(Pretokenizer::Qwen2, text);
}
std::vector<std::string> qwen35(std::string_view text) {
  return split(Pretokenizer::Qwen35, text);
}

TEST(Pretokenizer, WordsTakeOneCharacterInFront) {
  EXPECT_THAT(qwen2("Once upon a time,there"), ElementsAre("Once", " upon", " a", " time", ",there"));
  EXPECT_THAT(qwen2("_x \u00A0y\tz"), ElementsAre("_x", " ", "\u00A0y", "\tz"));
  EXPECT_THAT(qwen2("(a) \"b\""), ElementsAre("(a", ")", " \"", "b", "\""));
}

TEST(Pretokenizer, ContractionsInEitherCase) {
  EXPECT_THAT(qwen2("it's IT'S we'LL've"), ElementsAre("it", "'s", " IT", "'S", " we", "'LL", "'ve"));
  EXPECT_THAT(qwen2("'tis 'tail"), ElementsAre("'t", "is", " '", "tail"));
  EXPECT_THAT(qwen2("don\u2019t"), ElementsAre("don", "\u2019t"));
  EXPECT_THAT(qwen2("'\u017F"), ElementsAre("'\u017F"));  // a long s is no s
  EXPECT_THAT(qwen2("'l"), ElementsAre("'l"));
  EXPECT_THAT(qwen2("'"), ElementsAre("'"));
}

TEST(Pretokenizer, DigitsStandAlone) {
  EXPECT_THAT(qwen2("a12 34"), ElementsAre("a", "1", "2", " ", "3", "4"));
  EXPECT_THAT(qwen2("x\u00B2\u0663"), ElementsAre("x", "\u00B2", "\u0663"));
}

TEST(Pretokenizer, PunctuationTakesABlankBeforeAndNewlinesAfter) {
  EXPECT_THAT(qwen2("a ...\r\n\n b"), ElementsAre("a", " ...\r\n\n", " b"));
  EXPECT_THAT(qwen2("{}\t;"), ElementsAre("{}", "\t", ";"));
}

TEST(Pretokenizer, WhiteSpace) {
  EXPECT_THAT(qwen2("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(qwen2("a   1"), ElementsAre("a", "  ", " ", "1"));
  EXPECT_THAT(qwen2("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(qwen2("a  \n \n  b"), ElementsAre("a", "  \n \n", " ", " b"));
  EXPECT_THAT(qwen2("\r\n\r\n"), ElementsAre("\r\n\r\n"));
  EXPECT_THAT(qwen2(" "), ElementsAre(" "));
  EXPECT_THAT(qwen2("\u3000\u3000a"), ElementsAre("\u3000", "\u3000a"));
  EXPECT_THAT(qwen2("a\u200Bb"), ElementsAre("a", "\u200Bb"));  // zero width: no space
}

TEST(Pretokenizer, MarksBelongToWordsInQwen35Only) {
  EXPECT_THAT(qwen2("e\u0301a"), ElementsAre("e", "\u0301a"));
  EXPECT_THAT(qwen35("e\u0301a"), ElementsAre("e\u0301a"));
  EXPECT_THAT(qwen2("\u0301\u0301a"), ElementsAre("\u0301\u0301", "a"));
  EXPECT_THAT(qwen35("\u0301\u0301a"), ElementsAre("\u0301\u0301a"));
  EXPECT_THAT(qwen2("\u0928\u093F\u0928"), ElementsAre("\u0928", "\u093F\u0928"));
  EXPECT_THAT(qwen35("-\u0928\u093F\u0928!"), ElementsAre("-\u0928\u093F\u0928", "!"));
  EXPECT_THAT(qwen35("1\u0301 \u0301"), ElementsAre("1", "\u0301", " \u0301"));
}

TEST(Pretokenizer, EmojiWithJoinersStayTogether) {
  const std::string family = "\U0001F469\u200D\U0001F469\u200D\U0001F466";
  EXPECT_THAT(qwen2("a " + family + family), ElementsAre("a", " " + family + family));
}

}  // namespace
}  // namespace redlite::tokenizer
