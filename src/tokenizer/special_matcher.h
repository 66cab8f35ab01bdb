#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace redlite::tokenizer {

/// Finds tokens that are written out in a text, before the text is cut into words. Longer tokens are found
/// first, each from left to right in what the ones before it have left: llama.cpp's rule.
///
/// Keeps references into the vocabulary, which must outlive it and stay where it is.
class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocabulary& vocabulary);

  struct Match {
    size_t begin;
    size_t length;
    Token token;
  };

  /// The matches in the order of the text, without overlaps. User-defined tokens are always matched, control
  /// and unknown ones only with `parse_special`, and not where they would touch one of the parts in `plain`,
  /// which are in order. Linear in the text's length.
  std::vector<Match> find(std::string_view text, bool parse_special, std::span<const Range> plain = {}) const;

 private:
  struct Special {
    Token token;
    bool always;
    uint32_t priority;  ///< lower goes first
  };

  std::unordered_map<std::string_view, Special> by_text_;
  std::array<std::vector<size_t>, 256> lengths_;  ///< lengths of the tokens that begin with each byte
};

}  // namespace redlite::tokenizer
