#pragma once

#include <span>

#include "model/runner.h"

namespace redlite::engine {

/// Says which tokens may come next in one answer. Constrained decoding implements it (constrain/); the
/// generation loop asks it before each sample and tells it about each token that was taken.
///
///     filter.apply(logits);            // a copy: the runner's own are const
///     token = sampler.sample(logits);
///     if (is_end(token)) stop;
///     filter.accept(token);
///
/// One object for one answer; not safe to share between threads.
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;

  /// Sets the logits (one a token of the vocabulary; rows that pad the vocabulary may follow) of all tokens
  /// that may not come next to minus infinity and leaves the others as they are, at least one. End tokens are
  /// left exactly when the answer may end here.
  virtual void apply(std::span<float> logits) = 0;

  /// The answer goes on with this token, which apply() had left. End tokens are not told.
  virtual void accept(model::Token token) = 0;

 protected:
  TokenFilter() = default;
  TokenFilter(const TokenFilter&) = default;
  TokenFilter& operator=(const TokenFilter&) = default;
};

}  // namespace redlite::engine
