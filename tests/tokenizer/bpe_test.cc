#include "tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "small_vocabulary.h"

namespace redlite::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Token> encode(const Vocabulary& vocabulary, std::string_view word) {
  std::vector<Token> tokens;
  Bpe::Scratch scratch;
  Bpe(vocabulary, "m.gguf").encode(word, tokens, scratch);
  return tokens;
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  Vocabulary v;
  v.texts = {"a", "b", "c", "bc", "ab", "abc", "aa"};
  v.merges = {"b c", "a b", "a bc", "a a"};
  EXPECT_THAT(encode(v, "abc"), ElementsAre(5));  // b c before a b, then a bc
  EXPECT_THAT(encode(v, "ab"), ElementsAre(4));
  EXPECT_THAT(encode(v, "aaa"), ElementsAre(6, 0));  // the left pair
  EXPECT_THAT(encode(v, "aaaa"), ElementsAre(6, 6));
  EXPECT_THAT(encode(v, ""), IsEmpty());
}

TEST(Bpe, MergesLeadThroughTextsThatAreNoTokens) {
  Vocabulary v;
  v.texts = {"a", "b", "c", "abc"};
  v.merges = {"a b", "ab c"};
  EXPECT_THAT(encode(v, "abc"), ElementsAre(3));
  EXPECT_THAT(encode(v, "abb"), ElementsAre(0, 1, 1));  // "ab" falls back to its bytes
}

TEST(Bpe, BytesWithoutATokenAreLeftOut) {
  Vocabulary v;
  v.texts = {"a"};
  EXPECT_THAT(encode(v, "aXa\xC3\xA9"), ElementsAre(0, 0));
}

TEST(Bpe, AMergeListedTwiceKeepsItsFirstRank) {
  Vocabulary v;
  v.texts = {"a", "b", "c", "ab", "bc"};
  v.merges = {"b c", "a b", "b c"};
  EXPECT_THAT(encode(v, "abc"), ElementsAre(0, 4));
}

TEST(Bpe, DamagedListsAreErrors) {
  const auto message = [](const Vocabulary& v) -> std::string {
    try {
      Bpe bpe(v, "m.gguf");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  Vocabulary twice;
  twice.texts = {"a", "b", "a"};
  EXPECT_THAT(message(twice), HasSubstr("m.gguf: tokenizer.ggml.tokens: tokens 0 and 2 have the same text"));
  for (const char* merge : {"", "ab", " ", "a ", " a", "a"}) {
    Vocabulary v;
    v.texts = {"a", "b"};
    v.merges = {"a b", merge};
    EXPECT_THAT(message(v), HasSubstr("tokenizer.ggml.merges: entry 1 is not two texts")) << merge;
  }
}

/// The same by the book: look at all pairs, merge the best, begin again.
std::vector<std::string> merge_plainly(std::vector<std::string> parts,
                                       const std::vector<std::string>& merges) {
  while (true) {
    size_t best = merges.size();
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank] == parts[i] + " " + parts[i + 1]) {
          best = rank;
          where = i;
        }
      }
    }
    if (best == merges.size()) return parts;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
}

TEST(Bpe, EqualsThePlainAlgorithmOnRandomVocabularies) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Vocabulary v;
    v.texts = {"a", "b", "c"};
    for (int i = 0; i < 12; ++i) {
      const std::string left = v.texts[random() % v.texts.size()];
      const std::string right = v.texts[random() % v.texts.size()];
      if (std::find(v.texts.begin(), v.texts.end(), left + right) != v.texts.end()) continue;
      v.merges.push_back(left + " " + right);
      v.texts.push_back(left + right);
    }
    const Bpe bpe(v, "m.gguf");
    Bpe::Scratch scratch;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::string> letters;
      std::string word;
      for (size_t n = random() % 30; n > 0; --n) {
        letters.emplace_back(1, static_cast<char>('a' + random() % 3));
        word += letters.back();
      }
      std::vector<Token> expected;
      for (const std::string& part : merge_plainly(letters, v.merges)) expected.push_back(bpe.find(part));
      std::vector<Token> tokens;
      bpe.encode(word, tokens, scratch);
      ASSERT_EQ(tokens, expected) << word;
    }
  }
}

TEST(Bpe, ByteAlphabet) {
  EXPECT_EQ(byte_characters()[' '], "\u0120");
  EXPECT_EQ(byte_characters()['\n'], "\u010A");
  EXPECT_EQ(byte_characters()['a'], "a");
  EXPECT_EQ(byte_characters()[0xAD], "\u0143");
  for (size_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(decode_byte_characters(byte_characters()[byte]), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(decode_byte_characters("a\u4E2D\u0120"), "a\u4E2D ");
}

}  // namespace
}  // namespace redlite::tokenizer
