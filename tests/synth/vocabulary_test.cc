#include "synth/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace redlite::synth {
namespace {

using ::testing::HasSubstr;

std::map<std::string, gguf::Value> by_key(const Vocabulary& v) {
  return {v.metadata.begin(), v.metadata.end()};
}

template <typename T>
const std::vector<T>& array(const Vocabulary& v, const std::string& key) {
  static std::map<std::string, gguf::Value> keep;
  keep = by_key(v);
  return std::get<std::vector<T>>(std::get<std::shared_ptr<const gguf::Array>>(keep.at(key))->values);
}

class MadeVocabulary : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(MadeVocabulary, IsAConsistentByteLevelBpe) {
  const auto [n_tokens, first_special] = GetParam();
  const Vocabulary v = make_vocabulary(n_tokens, first_special, "qwen2");
  const std::vector<std::string> tokens = array<std::string>(v, "tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), static_cast<size_t>(n_tokens));
  EXPECT_EQ(v.text.size(), tokens.size());
  const std::set<std::string> known(tokens.begin(), tokens.end());
  EXPECT_EQ(known.size(), tokens.size()) << "all tokens differ";
  const std::vector<std::string> merges = array<std::string>(v, "tokenizer.ggml.merges");
  EXPECT_EQ(merges.size(), static_cast<size_t>(first_special - 256));
  std::set<std::string> made(tokens.begin(), tokens.begin() + 256);
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t blank = merges[i].find(' ');
    const std::string left = merges[i].substr(0, blank);
    const std::string right = merges[i].substr(blank + 1);
    ASSERT_TRUE(made.count(left) && made.count(right)) << merges[i] << " uses what no earlier merge made";
    ASSERT_EQ(left + right, tokens[256 + i]);
    made.insert(left + right);
  }
  const std::vector<int32_t> types = array<int32_t>(v, "tokenizer.ggml.token_type");
  for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(v.text[i], types[i] == 1) << i;
  const size_t special = static_cast<size_t>(first_special);
  EXPECT_EQ(tokens[special], "<|endoftext|>");
  EXPECT_EQ(tokens[special + 2], "<|im_end|>");
  EXPECT_EQ(std::get<uint32_t>(by_key(v).at("tokenizer.ggml.eos_token_id")), special + 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MadeVocabulary,
                         ::testing::Values(std::pair{259, 256}, std::pair{1024, 1021}, std::pair{1024, 700},
                                           std::pair{16384, 16381}, std::pair{151936, 151643},
                                           std::pair{248320, 248044}));

TEST(CopiedVocabulary, IsTheModelsAndPadded) {
  const Vocabulary v = copy_vocabulary(REDLITE_DEMO_MODEL, 5000);
  const gguf::File demo(REDLITE_DEMO_MODEL);
  const std::vector<std::string> tokens = array<std::string>(v, "tokenizer.ggml.tokens");
  const auto original = demo.get_strings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 5000u);
  ASSERT_LT(original->size(), tokens.size());
  EXPECT_TRUE(std::equal(original->begin(), original->end(), tokens.begin()));
  EXPECT_EQ(tokens.back(), "[PAD4999]");
  EXPECT_FALSE(v.text.back());
  EXPECT_TRUE(v.text[300]);
  EXPECT_TRUE(by_key(v).count("tokenizer.chat_template"));
  // A preset with fewer tokens gets the file's number of them.
  EXPECT_EQ(copy_vocabulary(REDLITE_DEMO_MODEL, 100).text.size(), original->size());
}

}  // namespace
}  // namespace redlite::synth
