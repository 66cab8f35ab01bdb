#pragma once

#include <functional>
#include <span>

#include "model/runner.h"

namespace redlite::engine {

struct Perplexity {
  int windows = 0;     ///< so far
  int64_t scored = 0;  ///< tokens
  double value = 0;    ///< e^(mean negative log-likelihood)
  double error = 0;    ///< its standard error; 0 if too few tokens were scored
};

/// How well a model predicts a text, as llama-perplexity computes it: the tokens are cut into windows of
/// `context`, whose rest is left out; each is read by itself, with `bos` (unless negative) in place of its
/// first token; the tokens of its second half but the first are scored, so that each has at least half a
/// window before it.
///
/// At most `most_windows` (0: all) are read; `progress` is told after each, and of the tokens of the present
/// one that are read. Throws Error for fewer tokens than a window, and for logits that are not finite.
Perplexity perplexity(model::Runner& runner, int n_vocab, std::span<const model::Token> tokens, int context,
                      model::Token bos, int most_windows,
                      const std::function<void(const Perplexity& so_far, double tokens_read)>& progress);

}  // namespace redlite::engine
