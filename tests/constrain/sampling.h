#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../gguf/raw_gguf.h"
#include "../tokenizer/small_vocabulary.h"
#include "constrain/constrain.h"

namespace redlite::constrain {

/// All single bytes, and pieces of JSON, of markup and of other text cut anywhere, also inside characters;
/// then two end tokens and a control token.
class TestVocabulary {
 public:
  TestVocabulary() : tokenizer_(make()), prepared_(make_vocabulary(tokenizer_)) {}

  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }
  const std::shared_ptr<const Vocabulary>& prepared() const { return prepared_; }
  static const TestVocabulary& get() {
    static const TestVocabulary kVocabulary;
    return kVocabulary;
  }

  /// As a vocabulary has it.
  static std::string spelled(std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) out += tokenizer::byte_characters()[static_cast<uint8_t>(byte)];
    return out;
  }

 private:
  static tokenizer::Tokenizer make() {
    tokenizer::SmallVocabulary out;
    std::set<std::string> pieces;
    for (const std::string_view text : {"{\"name\": \"Al\", \"age\": -12.50e+3, \"tags\": [\"a\", \"b\\n\"], "
                                        "\"x\":{\"y\":null,\"ok\":true}}",
                                        "{\n  \"id\": 1,\n\t\"no\": false\n}", "\"}]}]",
                                        "\\u00e9\\ud83d\\ude00\\\"\\\\", "\u00e9\u4e2d\U0001F600 \u00e9\"",
                                        "2024-02-29T23:59:59Z", "<parameter=a>\nv\n</parameter>\n</function>",
                                        "</think>\n\n", "hello world, 100", "\"\",", "[[[["}) {
      for (size_t begin = 0; begin < text.size(); ++begin)
        for (size_t size = 2; size <= 7 && begin + size <= text.size(); ++size)
          pieces.insert(std::string(text.substr(begin, size)));
    }
    for (const std::string& piece : pieces) out.add(spelled(piece), 1);
    for (const char* tag : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) out.add(tag, 4);
    out.add("<|im_start|>", 3);
    out.ids["eos"] = static_cast<uint32_t>(out.add("<|im_end|>", 3));
    out.ids["eot"] = static_cast<uint32_t>(out.add("<|endoftext|>", 3));
    return out.make();
  }

  tokenizer::Tokenizer tokenizer_;
  std::shared_ptr<const Vocabulary> prepared_;
};

/// The tokens that a filter leaves.
inline std::vector<model::Token> allowed(engine::TokenFilter& filter, size_t n_tokens) {
  std::vector<float> logits(n_tokens + 3, 1.0f);  // with some rows of padding
  filter.apply(logits);
  std::vector<model::Token> out;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) out.push_back(static_cast<model::Token>(i));
  return out;
}

struct Sample {
  std::string text;
  bool ended = false;  ///< with an end token
};

/// The byte that comes next if a text is to end with `tag`.
inline char next_of(std::string_view text, std::string_view tag) {
  size_t n = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, n))) --n;
  return tag[n];
}

/// One answer: every token that is left is as likely as any other, and after a while what closes is
/// preferred.
inline Sample sample(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random, size_t eager = 60,
                     const std::vector<std::string>& tags = {}, size_t most = 3000) {
  const TestVocabulary& vocabulary = TestVocabulary::get();
  const tokenizer::Tokenizer& tokenizer = vocabulary.tokenizer();
  const auto filter = make_filter(grammar, vocabulary.prepared());
  Sample out;
  for (size_t n = 0; n < most; ++n) {
    const std::vector<model::Token> left = allowed(*filter, static_cast<size_t>(tokenizer.size()));
    model::Token token = left[random() % left.size()];
    if (n > eager && random() % 4 != 0) {
      std::string closings = "\"}]0";
      // The first tag that the text does not have yet; the last as often as there is room for it.
      size_t tag = 0;
      while (tag + 1 < tags.size() && out.text.find(tags[tag]) != std::string::npos) ++tag;
      if (!tags.empty()) closings.insert(closings.begin(), next_of(out.text, tags[tag]));
      for (const char closing : closings) {
        const model::Token byte = static_cast<uint8_t>(closing);
        if (std::find(left.begin(), left.end(), byte) != left.end()) {
          token = byte;
          break;
        }
      }
      if (tokenizer.is_end(left.back())) token = left.back();
    }
    if (tokenizer.is_end(token)) {
      out.ended = true;
      return out;
    }
    out.text += tokenizer.piece(token);
    filter->accept(token);
  }
  return out;
}

/// Whether a text, cut into these pieces of tokens, is let through byte by byte and may end there.
inline bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  const TestVocabulary& vocabulary = TestVocabulary::get();
  const auto filter = make_filter(grammar, vocabulary.prepared());
  const auto n_tokens = static_cast<size_t>(vocabulary.tokenizer().size());
  for (const char byte : text) {
    const std::vector<model::Token> left = allowed(*filter, n_tokens);
    const model::Token token = static_cast<uint8_t>(byte);
    if (!std::binary_search(left.begin(), left.end(), token)) return false;
    filter->accept(token);
  }
  return vocabulary.tokenizer().is_end(allowed(*filter, n_tokens).back());
}

}  // namespace redlite::constrain
