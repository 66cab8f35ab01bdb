#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "small_vocabulary.h"
#include "tokenizer/unicode.h"

namespace redlite::tokenizer {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string message_of(const SmallVocabulary& vocabulary) {
  try {
    vocabulary.make();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string decode(const Tokenizer& tokenizer, const std::vector<Token>& tokens, bool special) {
  std::string text;
  for (const Token token : tokens) text += tokenizer.piece(token, special);
  return text;
}

TEST(Tokenizer, MergesInsideWordsOnly) {
  SmallVocabulary v;
  const Token space_a = v.add_merge("\u0120", "a");
  const Token aa = v.add_merge("a", "a");
  const Tokenizer t = v.make();
  EXPECT_THAT(t.encode("a a aa", false), ElementsAre('a', space_a, space_a, 'a'));
  EXPECT_THAT(t.encode("aa1aa", false), ElementsAre(aa, '1', aa));
  EXPECT_THAT(t.encode("", false), IsEmpty());
  EXPECT_EQ(t.piece(space_a), " a");
  EXPECT_EQ(t.find("aa"), aa);
  EXPECT_EQ(t.find("ab"), -1);
  EXPECT_EQ(t.size(), 258);
}

TEST(Tokenizer, SpecialTokens) {
  SmallVocabulary v;
  const Token control = v.add("<|im_start|>", 3);
  const Token unknown = v.add("<unk>", 2);
  const Token user = v.add("<think>", 4);
  const Token unused = v.add("<pad>", 5);
  const Tokenizer t = v.make();
  EXPECT_THAT(t.encode("a<|im_start|>b<unk><think>", true), ElementsAre('a', control, 'b', unknown, user));
  EXPECT_EQ(t.encode("<|im_start|>", false).size(), 12u);
  EXPECT_EQ(t.encode("<unk>", false).size(), 5u);
  EXPECT_EQ(t.encode("<pad>", true).size(), 5u);
  EXPECT_THAT(t.encode("x<think>", false), ElementsAre('x', user));
  EXPECT_THAT(t.encode("<think><think>", false), ElementsAre(user, user));
  EXPECT_EQ(t.encode("<|im_star|>", true).size(), 11u);
  EXPECT_EQ(t.piece(control), "");
  EXPECT_EQ(t.piece(control, true), "<|im_start|>");
  EXPECT_EQ(t.piece(unknown), "");
  EXPECT_EQ(t.piece(user), "<think>");
  EXPECT_EQ(t.piece(unused, true), "");
}

TEST(Tokenizer, LongerSpecialTokensGoFirst) {
  SmallVocabulary v;
  const Token ab = v.add("ab", 4);
  const Token bcd = v.add("bcd", 4);
  const Token abab = v.add("abab", 4);
  const Tokenizer t = v.make();
  EXPECT_THAT(t.encode("abcd", false), ElementsAre('a', bcd));  // not the leftmost: the longest
  EXPECT_THAT(t.encode("ababab", false), ElementsAre(abab, ab));
  EXPECT_THAT(t.encode("abababcd", false), ElementsAre(abab, 'a', bcd));
}

TEST(Tokenizer, SpecialTokensCutWords) {
  SmallVocabulary v;
  const Token x = v.add("<x>", 4);
  const Token blanks = v.add_merge("\u0120", "\u0120");
  const Tokenizer t = v.make();
  // The blanks before <x> end their text, so both stay in one word.
  const Token blank = t.find("\u0120");
  EXPECT_THAT(t.encode("a  <x>  b", false), ElementsAre('a', blanks, x, blank, blank, 'b'));
}

TEST(Tokenizer, TokensKnownByTheirText) {
  SmallVocabulary v;
  const Token im_end = v.add("<|im_end|>", 1);
  const Token end_of_text = v.add("<|endoftext|>", 3);
  const Token pad = v.add("<|fim_pad|>", 4);
  const Token middle = v.add("<|fim_middle|>", 4);
  const Token eot = v.add("<eot>", 3);
  const Token eos = v.add("<eos>", 3);
  v.ids = {{"eot", static_cast<uint32_t>(eot)}, {"eos", static_cast<uint32_t>(eos)}};
  const Tokenizer t = v.make();
  for (const Token token : {im_end, end_of_text, pad, eot, eos}) EXPECT_TRUE(t.is_end(token)) << token;
  for (const Token token : {middle, Token{'a'}, Token{-1}}) EXPECT_FALSE(t.is_end(token)) << token;
  // The file calls it user-defined; it is matched as a control token all the same.
  EXPECT_THAT(t.encode("<|fim_middle|>", true), ElementsAre(middle));
  EXPECT_EQ(t.encode("<|fim_middle|>", false).size(), 14u);
  EXPECT_EQ(t.piece(im_end), "");
  EXPECT_EQ(t.eos(), eos);
}

TEST(Tokenizer, PromptsGetWhatTheFileAsksFor) {
  SmallVocabulary v;
  v.ids = {{"bos", 'B'}, {"eos", 'E'}};
  EXPECT_EQ(v.make().bos(), -1);
  EXPECT_THAT(v.make().encode_prompt("x", false), ElementsAre('x'));
  v.flags = {{"add_bos_token", true}, {"add_eos_token", true}};
  EXPECT_EQ(v.make().bos(), 'B');
  EXPECT_THAT(v.make().encode_prompt("x", false), ElementsAre('B', 'x', 'E'));
  EXPECT_THAT(v.make().encode("x", false), ElementsAre('x'));
}

TEST(Tokenizer, AnyBytesAreAccepted) {
  const Tokenizer t = SmallVocabulary().make();
  EXPECT_EQ(decode(t, t.encode("a\0b"s, false), false), "a\0b"s);
  EXPECT_EQ(decode(t, t.encode("a\xFFz", false), false), "a\uFFFDz");
  EXPECT_EQ(decode(t, t.encode("\xED\xA0\x80", false), false), "\xED\xA0\x80");
}

TEST(Tokenizer, MissingOrDamagedKeysAreNamed) {
  for (const char* key : {"model", "pre", "tokens", "merges"}) {
    SmallVocabulary v;
    v.left_out = {key};
    EXPECT_THAT(message_of(v), HasSubstr("m.gguf: tokenizer.ggml."s + key + " is missing"));
  }
  SmallVocabulary v;
  v.left_out = {"token_type"};
  EXPECT_EQ(message_of(v), "no error");

  v = SmallVocabulary();
  v.model = "llama";
  EXPECT_THAT(message_of(v), HasSubstr("tokenizer.ggml.model is 'llama'; supported: gpt2"));
  v = SmallVocabulary();
  v.pre = "gpt-4o";
  EXPECT_THAT(message_of(v), HasSubstr("tokenizer.ggml.pre is 'gpt-4o'; supported: qwen2, qwen35"));
  v = SmallVocabulary();
  v.types.pop_back();
  EXPECT_THAT(message_of(v), HasSubstr("tokenizer.ggml.token_type has 255 values for 256 tokens"));
  v = SmallVocabulary();
  v.texts.clear();
  v.types.clear();
  EXPECT_THAT(message_of(v), HasSubstr("tokenizer.ggml.tokens is empty"));
  for (const char* key : {"bos", "eos", "eot", "eom", "fim_pad", "fim_sep"}) {
    v = SmallVocabulary();
    v.ids = {{key, 256}};
    EXPECT_THAT(message_of(v), HasSubstr(fmt::format("tokenizer.ggml.{}_token_id is 256", key)));
  }
  v = SmallVocabulary();
  v.flags = {{"add_bos_token", true}};
  EXPECT_THAT(message_of(v), HasSubstr("tokenizer.ggml.bos_token_id is missing"));
}

TEST(Tokenizer, PieceOfNoToken) {
  const Tokenizer t = SmallVocabulary().make();
  EXPECT_THROW(t.piece(-1), Error);
  EXPECT_THROW(t.piece(256), Error);
}

TEST(Tokenizer, ByteTokens) {
  SmallVocabulary v;
  const Token good = v.add("<0x41>", 6);
  const Token bad = v.add("<0xZZ>", 6);
  const Token short_one = v.add("<", 6);
  v.texts['<'] = "[gone]";
  const Tokenizer t = v.make();
  EXPECT_EQ(t.piece(good), "A");
  EXPECT_EQ(t.piece(bad), "");
  EXPECT_EQ(t.piece(short_one), "");
}

TEST(Tokenizer, EmptyTextsGetAName) {
  SmallVocabulary v;
  v.add("", 1);
  v.add("", 1);
  EXPECT_EQ(v.make().find("[EMPTY_257]"), 257);
}

/// The demo model's vocabulary, with merges learned from text.
class DemoTokenizer : public ::testing::Test {
 protected:
  gguf::File file_{REDLITE_DEMO_MODEL};
  Tokenizer tokenizer_{file_};
};

TEST_F(DemoTokenizer, TextComesBack) {
  std::mt19937 random(3);
  const std::vector<std::string> parts = {" ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "'s",
                                          "The",
                                          " king",
                                          "ING",
                                          "7",
                                          "\u00E9",
                                          "e\u0301",
                                          "\u4E2D",
                                          "\u05E9",
                                          "\U0001F469\u200D\U0001F466",
                                          "\U0001F1E9\U0001F1EA",
                                          "\u00A0",
                                          "\u200B",
                                          "<|im_end|>",
                                          "<|",
                                          "_",
                                          "...",
                                          "\0"s};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n) text += parts[random() % parts.size()];
    for (const bool special : {false, true}) {
      ASSERT_EQ(decode(tokenizer_, tokenizer_.encode(text, special), true), text);
    }
  }
}

TEST_F(DemoTokenizer, LongTextsTakeLittleTime) {
  const std::clock_t begin = std::clock();
  for (const std::string unit : {"a", " ", "\n", "<", "<|im_end|", "\u00E9", "the king "}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(decode(tokenizer_, tokenizer_.encode(text, true), true), text);
  }
  // Anything quadratic in 300,000 takes minutes of a core, however busy the machine is.
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const Tokenizer t = SmallVocabulary().make();
  StreamDecoder stream(t);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push_bytes("\xF0\x9F"), "");
  EXPECT_EQ(stream.push_bytes("\x91"), "");
  EXPECT_EQ(stream.push_bytes("\xA9\xC3"), "\U0001F469");
  EXPECT_EQ(stream.push_bytes("\xA9"), "\u00E9");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, ReplacesWhatCanNeverBecomeACharacter) {
  const Tokenizer t = SmallVocabulary().make();
  StreamDecoder stream(t);
  EXPECT_EQ(stream.push_bytes("\x80"), "\uFFFD");
  EXPECT_EQ(stream.push_bytes("\xE4\xB8"), "");
  EXPECT_EQ(stream.push_bytes("x"), "\uFFFDx");
  EXPECT_EQ(stream.push_bytes("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream.push_bytes("\xF0\x9F\x91"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, IsValidAtEveryPointForAnyBytes) {
  const Tokenizer t = SmallVocabulary().make();
  std::mt19937 random(5);
  const std::string alphabet = "a\x80\xBF\xC3\xE4\xED\xA0\xF0\x9F\x91\xF4\x90\xFF";
  for (int i = 0; i < 2000; ++i) {
    StreamDecoder stream(t);
    std::string bytes;
    std::string all;
    const auto take = [&](const std::string& text) {
      for (size_t at = 0; at < text.size();) {
        bool complete = false;
        const size_t length = well_formed_prefix(std::string_view(text).substr(at), complete);
        ASSERT_TRUE(complete);
        at += length;
      }
      all += text;
    };
    for (size_t n = random() % 20; n > 0; --n) {
      bytes += alphabet[random() % alphabet.size()];
      take(stream.push_bytes(bytes.substr(bytes.size() - 1)));
    }
    take(stream.finish());
    StreamDecoder at_once(t);
    const std::string expected = at_once.push_bytes(bytes);
    ASSERT_EQ(all, expected + at_once.finish());
  }
}

TEST(StreamDecoder, ControlTokensShowOnRequest) {
  SmallVocabulary v;
  const Token control = v.add("<|im_end|>", 3);
  const Tokenizer t = v.make();
  EXPECT_EQ(StreamDecoder(t).push(control), "");
  EXPECT_EQ(StreamDecoder(t, true).push(control), "<|im_end|>");
}

}  // namespace
}  // namespace redlite::tokenizer
