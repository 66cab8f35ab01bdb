#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "session/request.h"
#include "session/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace redlite::session {

/// One answer from logits to text: filter, sampler, logprobs, end tokens, limits and stop strings.
class AnswerWriter {
 public:
  /// `most_tokens`: that the context leaves. The request must outlive it.
  AnswerWriter(const tokenizer::Tokenizer& tokenizer, const Request& request, int most_tokens);

  struct Step {
    std::optional<model::Token> next;  ///< to be appended to the sequence for the logits of the next step
    Piece piece;                       ///< empty when there is nothing to tell
    std::optional<Finished> end;       ///< after the piece; `usage` is left to the caller
  };
  /// Chooses the next token. Throws Error for logits that are not finite.
  Step step(std::span<const float> logits);
  /// Whether model::best_token() of the logits is all that step() needs to know of them.
  bool greedy() const { return !request_.filter && request_.top_logprobs < 0 && sampler_.greedy(); }
  /// Where that is so: goes on with that token.
  Step step(model::Token best);

  int tokens() const { return n_tokens_; }

 private:
  Step take(model::Token token, std::span<const float> logits);
  AnswerToken describe(model::Token token, std::span<const float> logits) const;
  void finish(Step& step, FinishReason reason);

  const tokenizer::Tokenizer& tokenizer_;
  const Request& request_;
  int most_tokens_;
  engine::Sampler sampler_;
  tokenizer::StreamDecoder decoder_;
  StopStrings stop_;
  std::vector<float> filtered_;
  int n_tokens_ = 0;
};

}  // namespace redlite::session
