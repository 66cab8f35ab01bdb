#include "dialogue/reading.h"

#include <algorithm>

#include "base/error.h"

namespace redlite::dialogue {

Reading::Reading(const tokenizer::Tokenizer& tokenizer, std::span<const tokenizer::Token> tokens)
    : tokenizer_(&tokenizer) {
  for (const tokenizer::Token token : tokens) push(token);
}

void Reading::push(tokenizer::Token token) {
  const std::string text = tokenizer_->piece(token, /*special=*/true);
  const bool control = tokenizer_->piece(token).empty();
  tokens_.push_back(token);
  text_ += text;
  control_.append(text.size(), control ? '\1' : '\0');
  begins_.push_back(text_.size());
}

void Reading::cut(size_t n) {
  RL_CHECK(n <= size(), "{} of {} tokens", n, size());
  tokens_.resize(n);
  begins_.resize(n + 1);
  text_.resize(begins_.back());
  control_.resize(begins_.back());
}

size_t Reading::tokens_within(size_t bytes) const {
  return static_cast<size_t>(std::ranges::upper_bound(begins_, bytes) - begins_.begin()) - 1;
}

size_t Reading::tokens_in(size_t bytes) const {
  const size_t n = tokens_within(bytes);
  return begins_[n] == bytes ? n : size() + 1;
}

size_t Reading::common(const Reading& other) const {
  const size_t n = std::min(text_.size(), other.text_.size());
  const auto text =
      std::mismatch(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(n), other.text_.begin());
  const auto control =
      std::mismatch(control_.begin(), control_.begin() + static_cast<ptrdiff_t>(n), other.control_.begin());
  return static_cast<size_t>(std::min(text.first - text_.begin(), control.first - control_.begin()));
}

}  // namespace redlite::dialogue
