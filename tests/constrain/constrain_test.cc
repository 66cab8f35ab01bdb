#include "constrain/constrain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "constrain/automaton.h"
#include "sampling.h"

namespace redlite::constrain {
namespace {

using chat::Reasoning;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST(JsonObject, LetsEveryJsonObjectThrough) {
  const auto grammar = json_object(Reasoning::None);
  for (const char* text :
       {"{}", R"({"a":1})",
        R"({"a": [1, -2.5, 1e-7, 0, {"b": null}], "c": "\u00e9\ud83d\ude00\"\\é😀", "": true})",
        "{\n  \"a\": [\n    false\n  ],\n  \"b\": []\n}"}) {
    EXPECT_TRUE(accepts(grammar, text)) << text;
  }
}

TEST(JsonObject, LetsNothingElseThrough) {
  const auto grammar = json_object(Reasoning::None);
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           "{} ",
                           R"({"a":1,})",
                           R"({"a" 1})",
                           R"({a:1})",
                           R"({"a":01})",
                           R"({"a":+1})",
                           R"({"a":.5})",
                           R"({"a":1.})",
                           R"({"a":nul})",
                           "{\"a\":\"\n\"}",
                           R"({"a":"\x"})",
                           R"({"a":"\ud800"})",
                           R"({"a":"\udc00"})",
                           R"({"a":"\ud800\u0041"})",
                           "{\"a\":\"\xff\"}",
                           "{\"a\":\"\xc0\x80\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{\"a\":\"\xc3\"}",
                           R"({"a":1e999})",
                           "```json\n{}",
                           "{} {}",
                           R"({'a':1})"}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(JsonObject, IsAlwaysJson) {
  const auto grammar = json_object(Reasoning::None);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const Sample s = sample(grammar, random);
    ASSERT_TRUE(s.ended) << s.text;
    ASSERT_TRUE(ordered_json::parse(s.text, nullptr, false).is_object()) << s.text;
  }
}

TEST(JsonObject, FollowsReasoning) {
  const std::string reasoning = "Hm, \xff</thin </think>";
  for (const std::string breaks : {"", "\n", "\n\n"}) {
    EXPECT_TRUE(accepts(json_object(Reasoning::Open), reasoning + breaks + "{}"));
    EXPECT_TRUE(accepts(json_object(Reasoning::Possible), "<think>" + reasoning + breaks + "{}"));
  }
  EXPECT_TRUE(accepts(json_object(Reasoning::Possible), "{}"));
  EXPECT_FALSE(accepts(json_object(Reasoning::Possible), "<think>{}"));
  EXPECT_FALSE(accepts(json_object(Reasoning::Open), "{}"));
  EXPECT_FALSE(accepts(json_object(Reasoning::Open), reasoning + "\n\n\n{}"));
  EXPECT_FALSE(accepts(json_object(Reasoning::None), "<think></think>{}"));
}

TEST(Filter, LeavesOtherLogitsAlone) {
  const TestVocabulary& vocabulary = TestVocabulary::get();
  const auto filter = make_filter(json_object(Reasoning::None), vocabulary.prepared());
  std::vector<float> logits(static_cast<size_t>(vocabulary.tokenizer().size()) + 5);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) + 0.5f;
  filter->apply(logits);
  size_t left = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isinf(logits[i])) continue;
    EXPECT_EQ(logits[i], static_cast<float>(i) + 0.5f);
    ++left;
  }
  EXPECT_GT(left, 1u);
  EXPECT_TRUE(std::isfinite(logits['{']));
  EXPECT_FALSE(std::isfinite(logits['[']));
}

/// Each token that a filter leaves, and no other, is one whose bytes can come: compared byte by byte, along
/// random answers.
TEST(Filter, AgreesWithSingleBytes) {
  const TestVocabulary& vocabulary = TestVocabulary::get();
  const auto n_tokens = static_cast<size_t>(vocabulary.tokenizer().size());
  const auto grammar = json_schema(ordered_json::parse(R"({"type": "object", "properties": {
      "name": {"type": "string", "minLength": 2, "maxLength": 5}, "tags": {"type": "array", "items": {"type": "string"}},
      "x": {"enum": ["y", "ok", "no", 1, -12.5]}, "age": {"type": "number"},
      "p": {"type": "string", "pattern": "^[a-e\u00e9]{2,9}(x|y)$"}}, "required": ["name"], "additionalProperties": true})"),
                                   Reasoning::Possible);
  std::mt19937 random(2);
  const std::vector<model::Token> none;
  for (int round = 0; round < 15; ++round) {
    std::vector<model::Token> so_far;
    for (int n = 0; n < 40; ++n) {
      const auto filter = make_filter(grammar, vocabulary.prepared());
      for (const model::Token token : so_far) filter->accept(token);
      const std::vector<model::Token> left = allowed(*filter, n_tokens);
      // A few tokens, each tried byte by byte.
      for (int trial = 0; trial < 12; ++trial) {
        const auto token = static_cast<model::Token>(random() % n_tokens);
        const std::string bytes = vocabulary.tokenizer().piece(token);
        if (bytes.empty()) continue;
        const auto bytewise = make_filter(grammar, vocabulary.prepared());
        for (const model::Token t : so_far) bytewise->accept(t);
        bool possible = true;
        for (const char byte : bytes) {
          const std::vector<model::Token> next = allowed(*bytewise, n_tokens);
          possible = std::binary_search(next.begin(), next.end(), static_cast<uint8_t>(byte));
          if (!possible) break;
          bytewise->accept(static_cast<uint8_t>(byte));
        }
        ASSERT_EQ(std::binary_search(left.begin(), left.end(), token), possible) << bytes;
      }
      const model::Token next = left[random() % left.size()];
      if (vocabulary.tokenizer().is_end(next)) break;
      so_far.push_back(next);
    }
  }
}

/// Plain text of many kinds, lengths and cuts, in grammars that let through all of some kinds, nearly all, or
/// only what is short.
TEST(Filter, AgreesWithSingleBytesInPlainText) {
  std::mt19937 random(5);
  tokenizer::SmallVocabulary small;
  std::set<std::string> pieces;
  const std::vector<std::vector<std::string>> alphabets = {{"a", "b", "z"},
                                                           {"a", "Q"},
                                                           {"x", "7", "_"},
                                                           {"a", "-", ".", " "},
                                                           {"3", ",", "/"},
                                                           {"\u00e9", "a", "\u4e2d"},
                                                           {"\u2028", "\u2027", "\u202a"},
                                                           {"\U0001F600", "-"},
                                                           {"a", "\"", "\\n", "<", "\t"}};
  while (pieces.size() < 2000) {
    const std::vector<std::string>& alphabet = alphabets[random() % alphabets.size()];
    std::string text = random() % 3 == 0 ? " " : "";
    const size_t size = 1 + random() % 20;
    while (text.size() < size) text += alphabet[random() % alphabet.size()];
    if (random() % 4 == 0) text.resize(size);
    if (text.size() > 1) pieces.insert(text);
  }
  for (const std::string& piece : pieces) small.add(TestVocabulary::spelled(piece), 1);
  small.ids["eos"] = static_cast<uint32_t>(small.add("<|im_end|>", 3));
  const tokenizer::Tokenizer tokenizer = small.make();
  const auto vocabulary = make_vocabulary(tokenizer);
  const auto n_tokens = static_cast<size_t>(tokenizer.size());

  const auto string = [](const char* keywords) {
    return json_schema(ordered_json::parse(fmt::format(R"({{"type": "string", {}}})", keywords)),
                       Reasoning::None);
  };
  for (const auto& grammar :
       {string(R"("pattern": "^.{0,60}$")"), string(R"("pattern": "^[a-z ]{3,40}$")"),
        string(R"("pattern": "^[^0-9]+$", "maxLength": 50)"), string(R"("pattern": "^\\w+( \\w+){0,9}$")"),
        string(R"("pattern": "ab|x7")"), string(R"("format": "email")"), json_object(Reasoning::Open)}) {
    for (int round = 0; round < 6; ++round) {
      const auto filter = make_filter(grammar, vocabulary);
      Automaton automaton(grammar);
      Automaton::Config config = automaton.start();
      const auto after = [&](model::Token token) {
        Automaton::Config at = config;
        for (const char byte : tokenizer.piece(token))
          if (at != Automaton::kDead) at = automaton.next(at, static_cast<uint8_t>(byte));
        return at;
      };
      for (int n = 0; n < 25; ++n) {
        const std::vector<model::Token> left = allowed(*filter, n_tokens);
        std::vector<model::Token> expected;
        for (model::Token token = 0; token < tokenizer.size(); ++token) {
          const bool may = tokenizer.is_end(token) ? automaton.may_end(config)
                                                   : !tokenizer.piece(token).empty() && after(token) >= 0;
          if (may) expected.push_back(token);
        }
        ASSERT_EQ(left, expected);
        const model::Token next = left[random() % left.size()];
        if (tokenizer.is_end(next)) break;
        filter->accept(next);
        config = after(next);
      }
    }
  }
}

TEST(Filter, SaysWhenAVocabularyHasNoWayOn) {
  tokenizer::SmallVocabulary small;
  for (size_t i = 0; i < small.texts.size(); ++i)
    if (i != 'a') small.types[i] = 5;  // unused
  const tokenizer::Tokenizer tokenizer = small.make();
  const auto filter = make_filter(json_object(Reasoning::None), make_vocabulary(tokenizer));
  std::vector<float> logits(static_cast<size_t>(tokenizer.size()));
  EXPECT_THROW(filter->apply(logits), Error);
}

}  // namespace
}  // namespace redlite::constrain
