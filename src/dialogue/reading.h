#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace redlite::dialogue {

/// Tokens with the text they stand for. Two readings of one text may be cut into different tokens (a model
/// does not always write the tokens that an encoder would choose), so they are compared as text; a control
/// token is never the same as its name written out.
class Reading {
 public:
  explicit Reading(const tokenizer::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  Reading(const tokenizer::Tokenizer& tokenizer, std::span<const tokenizer::Token> tokens);

  void push(tokenizer::Token token);
  /// Drops all but the first `n` tokens.
  void cut(size_t n);

  const std::vector<tokenizer::Token>& tokens() const { return tokens_; }
  size_t size() const { return tokens_.size(); }
  const std::string& text() const { return text_; }
  /// Bytes of text in front of token `i`, which may be size().
  size_t begin_of(size_t i) const { return begins_[i]; }
  /// The number of tokens that are exactly the first `bytes` of the text; size() + 1 if a token lies across.
  size_t tokens_in(size_t bytes) const;
  /// Most tokens whose text lies within the first `bytes`.
  size_t tokens_within(size_t bytes) const;
  /// Bytes at the beginning that both have.
  size_t common(const Reading& other) const;

 private:
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<tokenizer::Token> tokens_;
  std::vector<size_t> begins_{0};
  std::string text_;
  std::string control_;  ///< for each byte of the text: 1 if a control token's
};

}  // namespace redlite::dialogue
