#include "constrain/regex.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "constrain/automaton.h"

namespace redlite::constrain {
namespace {

/// A grammar of what matches, as plain text.
std::shared_ptr<const Grammar> grammar_of(const std::string& pattern) {
  GrammarBuilder b;
  const Regex regex(pattern);
  const NodeId start = matching_all(b, std::span(&regex, 1), 0, kNoLimit, Writing::Plain, b.finish_rule());
  return std::make_shared<const Grammar>(std::move(b).finish(start));
}

bool matches_grammar(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Automaton automaton(grammar);
  Automaton::Config config = automaton.start();
  for (const char byte : text) {
    if (config == Automaton::kDead) return false;
    config = automaton.next(config, static_cast<uint8_t>(byte));
  }
  return config != Automaton::kDead && automaton.may_end(config);
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i)
    for (const char letter : {'a', 'b', '-', '1'}) texts.push_back(texts[i] + letter);
  for (const std::string pattern : {"",
                                    "a",
                                    "^a",
                                    "a$",
                                    "^a$",
                                    "^$",
                                    "a|b1",
                                    "^(a|b)$",
                                    "^(?:ab)*$",
                                    "^(a*)*$",
                                    "^(a|ab)(b|)$",
                                    "^a{2}$",
                                    "^a{2,}$",
                                    "^a{1,3}b?$",
                                    "^[ab]+$",
                                    "^[^a]*$",
                                    "^[a-b1]{2}$",
                                    "\\d",
                                    "^\\D+$",
                                    "\\w-",
                                    "^\\w*$",
                                    "^.$",
                                    "^a.+1$",
                                    "(a|^b)1",
                                    "a(-|$)",
                                    "^a*?b$",
                                    "^[-a]+$",
                                    "^[a\\-]+$",
                                    "^(a(b(1)?)?)?$",
                                    "^a|b$",
                                    "(^a|1$)",
                                    "^(|a)+$",
                                    "\\x61\\u0062",
                                    "^[\\da]*$",
                                    "^(a?){3}$",
                                    "a{0}b"}) {
    const auto grammar = grammar_of(pattern);
    const std::regex standard(pattern);
    for (const std::string& text : texts)
      ASSERT_EQ(matches_grammar(grammar, text), std::regex_search(text, standard))
          << pattern << " on " << text;
  }
}

TEST(Regex, KnowsCharactersBeyondAscii) {
  EXPECT_TRUE(matches_grammar(grammar_of("^.$"), "\U0001F600"));
  EXPECT_FALSE(matches_grammar(grammar_of("^.$"), "\n"));
  EXPECT_FALSE(matches_grammar(grammar_of("^.$"), "\u2028"));
  EXPECT_TRUE(matches_grammar(grammar_of("^[\u00e0-\u00ff]+$"), "\u00e9\u00ff"));
  EXPECT_FALSE(matches_grammar(grammar_of("^[\u00e0-\u00ff]+$"), "\u0100"));
  EXPECT_TRUE(matches_grammar(grammar_of("^\\u00e9\\u{1F600}\\ud83d\\ude00$"), "\u00e9\U0001F600\U0001F600"));
  EXPECT_TRUE(matches_grammar(grammar_of("^\\s\\S$"), "\u3000\u4e2d"));
  EXPECT_TRUE(matches_grammar(grammar_of("^[^\\s]$"), "\u4e2d"));
  EXPECT_TRUE(matches_grammar(grammar_of("^[\\s\\S]$"), "\n"));
  EXPECT_TRUE(matches_grammar(grammar_of("^[^]$"), "\n"));
  EXPECT_TRUE(matches_grammar(grammar_of("^{a}{$"), "{a}{"));
}

/// Every range of code points becomes the bytes of exactly its characters.
TEST(Regex, WritesRangesAsUtf8) {
  const std::vector<uint32_t> edges = {0x20,   0x7f,   0x80,   0x7ff,   0x800,   0xfff,   0x1000,
                                       0xd7ff, 0xe000, 0xffff, 0x10000, 0x10001, 0x3ffff, 0x10ffff};
  for (size_t i = 0; i < edges.size(); ++i) {
    for (size_t j = i; j < edges.size(); ++j) {
      const auto grammar = grammar_of(fmt::format("^[\\u{{{:x}}}-\\u{{{:x}}}]$", edges[i], edges[j]));
      for (const uint32_t edge : edges) {
        for (int d = -1; d <= 1; ++d) {
          const uint32_t c = edge + static_cast<uint32_t>(d);
          if (c == '<' || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) continue;
          std::string text;
          if (c < 0x80) {
            text = {static_cast<char>(c)};
          } else if (c < 0x800) {
            text = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
          } else if (c < 0x10000) {
            text = {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                    static_cast<char>(0x80 | (c & 63))};
          } else {
            text = {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
                    static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
          }
          ASSERT_EQ(matches_grammar(grammar, text), c >= edges[i] && c <= edges[j])
              << edges[i] << " " << edges[j] << " " << c;
        }
      }
    }
  }
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  for (const char* bad : {"(",
                          ")",
                          "(a",
                          "[a",
                          "[b-a]",
                          "a**",
                          "*a",
                          "^*",
                          "a{3,2}",
                          "\\",
                          "\\1",
                          "\\b",
                          "\\p{L}",
                          "\\k",
                          "(?=a)",
                          "(?!a)",
                          "(?<=a)",
                          "(?<!a)",
                          "(?<n",
                          "\\xg1",
                          "\\u12",
                          "\\u{110000}",
                          "\\ud83d\\u0041",
                          "\\01",
                          "[\\",
                          "a{1000000}"})
    EXPECT_THROW(Regex{bad}, Error) << bad;
  EXPECT_THROW(Regex{std::string(5000, 'a')}, Error);
}

}  // namespace
}  // namespace redlite::constrain
