#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::synth {

/// A tokenizer to write into a model.
struct Vocabulary {
  std::vector<std::pair<std::string, gguf::Value>> metadata;  ///< the tokenizer.* keys
  /// For each id: whether it is text that the model may well produce; control tokens and padding are not.
  std::vector<bool> text;
};

/// A byte-level BPE vocabulary of n_tokens: the 256 bytes, merges of frequent letters into syllables and
/// short words, <|endoftext|>, <|im_start|> and <|im_end|> at `first_special`, and unused tokens behind them.
/// `pre` names the pre-tokenizer. Needs first_special >= 256.
Vocabulary make_vocabulary(int n_tokens, int first_special, const std::string& pre);

/// The tokenizer of another model, padded with unused tokens to at least n_tokens.
/// Throws Error when the file has none.
Vocabulary copy_vocabulary(const std::string& path, int n_tokens);

}  // namespace redlite::synth
