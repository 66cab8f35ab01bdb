#include "constrain/grammar.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "constrain/automaton.h"
#include "constrain/string_automaton.h"

namespace redlite::constrain {
namespace {

/// Whether the grammar lets exactly this text through.
bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text, bool restarting = false) {
  Automaton automaton(grammar);
  Automaton::Config config = automaton.start();
  if (config == Automaton::kDead) return false;
  for (const char byte : text) {
    if (restarting) config = automaton.restart(config);
    config = automaton.next(config, static_cast<uint8_t>(byte));
    if (config == Automaton::kDead) return false;
  }
  return automaton.may_end(config);
}

std::shared_ptr<const Grammar> finish(GrammarBuilder&& b, NodeId start) {
  return std::make_shared<const Grammar>(std::move(b).finish(start));
}

TEST(Grammar, CountsRounds) {
  for (const uint32_t min : {0u, 1u, 3u}) {
    for (const uint32_t max : {3u, 5u, kNoLimit}) {
      GrammarBuilder b;
      const NodeId end = b.finish_rule();
      const auto grammar = finish(std::move(b), b.loop(b.literal("ab", end), min, max, b.literal(".", end)));
      std::string text;
      for (uint32_t n = 0; n < 9; ++n, text += "ab")
        EXPECT_EQ(matches(grammar, text + "."), n >= min && n <= max);
      EXPECT_FALSE(matches(grammar, "aba."));
    }
  }
}

TEST(Grammar, RecursesWithAStack) {
  GrammarBuilder b;
  const NodeId end = b.finish_rule();
  const NodeId rule = b.reserve();
  b.set(rule, b.either(b.literal("x", end), b.literal("(", b.call(rule, b.literal(")", end)))));
  const auto grammar = finish(std::move(b), rule);
  for (int n = 0; n < 50; ++n) {
    const std::string text = std::string(n, '(') + "x" + std::string(n, ')');
    EXPECT_TRUE(matches(grammar, text));
    EXPECT_TRUE(matches(grammar, text, /*restarting=*/true));
    EXPECT_FALSE(matches(grammar, text + ")"));
    EXPECT_FALSE(matches(grammar, "(" + text));
  }
}

TEST(Grammar, NeverEntersWhatDoesNotEnd) {
  GrammarBuilder b;
  const NodeId end = b.finish_rule();
  const NodeId endless = b.reserve();
  b.set(endless, b.literal("a", b.call(endless, end)));
  const NodeId start =
      b.either(b.literal("x", b.call(endless, end)), b.loop(b.call(endless, end), 0, 5, b.literal("y", end)));
  const auto grammar = finish(std::move(b), start);
  Automaton automaton(grammar);
  EXPECT_EQ(automaton.next(automaton.start(), 'x'), Automaton::kDead);
  EXPECT_EQ(automaton.next(automaton.start(), 'a'), Automaton::kDead);
  EXPECT_TRUE(matches(grammar, "y"));
  EXPECT_FALSE(grammar->productive(endless));
}

TEST(Grammar, FindsRulesThatBeginWithThemselves) {
  const auto recursive = [](auto write) {
    GrammarBuilder b;
    const NodeId rule = b.reserve();
    b.set(rule, write(b, rule));
    return b.find_left_recursion().has_value();
  };
  EXPECT_TRUE(recursive([](GrammarBuilder& b, NodeId rule) { return b.call(rule, b.finish_rule()); }));
  EXPECT_TRUE(recursive([](GrammarBuilder& b, NodeId rule) {
    return b.either(b.literal("a", b.finish_rule()),
                    b.loop(b.call(rule, b.finish_rule()), 1, 2, b.finish_rule()));
  }));
  EXPECT_TRUE(recursive([](GrammarBuilder& b, NodeId rule) {  // beside a harmless circle
    const NodeId split = b.reserve();
    b.set(split, rule);
    return b.either(split, b.call(split, b.finish_rule()));
  }));
  EXPECT_FALSE(recursive(
      [](GrammarBuilder& b, NodeId rule) { return b.literal("a", b.call(rule, b.finish_rule())); }));
  EXPECT_FALSE(recursive([](GrammarBuilder& b, NodeId rule) { return b.either(rule, b.finish_rule()); }));
}

TEST(Grammar, TakesAnythingUntilATag) {
  for (const std::string end : {"</think>", "aab", "abab", "x", "aaa"}) {
    GrammarBuilder b;
    const NodeId start = b.until(end, b.finish_rule());
    const auto grammar = finish(std::move(b), start);
    // All texts of a few letters, up to a length.
    const std::string letters = end == "</think>" ? "</t" : "abx";
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < 7; ++i)
      for (const char letter : letters) texts.push_back(texts[i] + letter);
    for (const std::string& text : texts)
      ASSERT_EQ(matches(grammar, text),
                text.size() >= end.size() && text.find(end) == text.size() - end.size())
          << text;
    EXPECT_EQ(matches(grammar, "</</think</think>"), end == "</think>");
  }
}

TEST(Grammar, HasALimit) {
  GrammarBuilder b;
  NodeId next = b.finish_rule();
  EXPECT_THROW(for (size_t i = 0; i <= GrammarBuilder::kMaxNodes; ++i) next = b.literal("a", next);, Error);
}

TEST(StringAutomaton, AgreesWithUtf8) {
  // Every code point's bytes are let through, but those of surrogates, and no shorter or longer form.
  const auto runs = [](std::initializer_list<int> bytes) {
    uint8_t state = StringAutomaton::kStart;
    for (const int byte : bytes) {
      state = StringAutomaton::step(state, static_cast<uint8_t>(byte));
      if (state >= StringAutomaton::kStates) return false;
    }
    return state == StringAutomaton::kStart;
  };
  for (int c = 0x80; c < 0x800; ++c) EXPECT_TRUE(runs({0xc0 | c >> 6, 0x80 | (c & 63)}));
  for (int c = 0; c < 0x10000; ++c)
    EXPECT_EQ(runs({0xe0 | c >> 12, 0x80 | (c >> 6 & 63), 0x80 | (c & 63)}),
              c >= 0x800 && (c < 0xd800 || c > 0xdfff));
  for (int c = 0; c < 0x200000; c += 61)
    EXPECT_EQ(runs({0xf0 | c >> 18, 0x80 | (c >> 12 & 63), 0x80 | (c >> 6 & 63), 0x80 | (c & 63)}),
              c >= 0x10000 && c < 0x110000);
  for (int c = 0; c < 0x80; ++c) {
    EXPECT_EQ(runs({c}), c >= 0x20 && c != '"' && c != '\\');
    EXPECT_FALSE(runs({0xc0 | c >> 6, 0x80 | (c & 63)}));
  }
}

}  // namespace
}  // namespace redlite::constrain
