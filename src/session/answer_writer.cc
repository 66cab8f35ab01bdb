#include "session/answer_writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace redlite::session {

AnswerWriter::AnswerWriter(const tokenizer::Tokenizer& tokenizer, const Request& request, int most_tokens)
    : tokenizer_(tokenizer),
      request_(request),
      most_tokens_(request.max_tokens > 0 ? std::min(request.max_tokens, most_tokens) : most_tokens),
      sampler_(request.sampler),
      decoder_(tokenizer, request.special),
      stop_(request.stop) {
  for (const model::Token token : request.prompt) sampler_.accept(token);
}

AnswerWriter::Step AnswerWriter::step(std::span<const float> logits) {
  std::span<const float> allowed = logits;
  if (request_.filter) {
    filtered_.assign(logits.begin(), logits.end());
    request_.filter->apply(filtered_);
    allowed = filtered_;
  }
  return take(sampler_.sample(allowed), logits);
}

AnswerWriter::Step AnswerWriter::step(model::Token best) {
  RL_CHECK(greedy());
  return take(best, {});
}

AnswerWriter::Step AnswerWriter::take(model::Token token, std::span<const float> logits) {
  Step step;
  if (!request_.ignore_end && tokenizer_.is_end(token)) {
    finish(step, FinishReason::End);
    return step;
  }
  sampler_.accept(token);
  if (request_.filter) request_.filter->accept(token);
  ++n_tokens_;
  step.piece.tokens.push_back(describe(token, logits));
  step.piece.text = stop_.push(decoder_.push(token));
  if (stop_.found()) {
    step.end.emplace().reason = FinishReason::Stop;
    step.end->stop = stop_.which();
  } else if (n_tokens_ == most_tokens_) {
    finish(step, FinishReason::Length);
  } else {
    step.next = token;
  }
  return step;
}

void AnswerWriter::finish(Step& step, FinishReason reason) {
  step.piece.text += stop_.push(decoder_.finish());
  step.end.emplace().reason = reason;
  if (stop_.found()) {
    step.end->reason = FinishReason::Stop;
    step.end->stop = stop_.which();
  } else {
    step.piece.text += stop_.finish();
  }
}

AnswerToken AnswerWriter::describe(model::Token token, std::span<const float> logits) const {
  AnswerToken told{.token = token, .logprob = 0, .top = {}};
  if (request_.top_logprobs < 0) return told;
  const double max = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double log_sum = max + std::log(sum);
  const auto logprob = [&](model::Token t) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(t)]) - log_sum);
  };
  told.logprob = logprob(token);
  std::vector<model::Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto n = std::min(order.size(), static_cast<size_t>(request_.top_logprobs));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](model::Token a, model::Token b) {
                      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  for (size_t i = 0; i < n; ++i) told.top.emplace_back(order[i], logprob(order[i]));
  return told;
}

}  // namespace redlite::session
