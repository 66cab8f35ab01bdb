#include "engine/generate.h"

#include <chrono>

#include "base/error.h"

namespace redlite::engine {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::EndToken:
      return "end token";
    case StopReason::MaxTokens:
      return "token limit";
    case StopReason::Cancelled:
      return "cancelled";
  }
  return "?";
}

GenerateResult generate_tokens(model::Runner& runner, const tokenizer::Tokenizer& tokenizer,
                               std::span<const model::Token> prompt, const GenerateOptions& options,
                               const TokenSink& sink) {
  if (prompt.empty()) fail("the prompt is empty: give at least one token");
  GenerateResult result;
  result.prompt_tokens = static_cast<int>(prompt.size());
  Sampler sampler(options.sampler);
  for (const model::Token token : options.history) sampler.accept(token);
  for (const model::Token token : prompt) sampler.accept(token);
  const auto cancelled = [&] { return options.cancel && options.cancel->load(std::memory_order_relaxed); };

  const Stopwatch prefill;
  const auto choose_after = [&](std::span<const model::Token> tokens) {
    return sampler.greedy() ? runner.forward_best(tokens)
                            : sampler.sample(runner.forward(tokens, model::LogitsFor::Last));
  };
  model::Token token = choose_after(prompt);
  result.prefill_seconds = prefill.seconds();

  const Stopwatch decode;
  while (static_cast<int>(result.tokens.size()) < options.max_tokens) {
    if (cancelled()) {
      result.reason = StopReason::Cancelled;
      break;
    }
    if (!options.ignore_end && tokenizer.is_end(token)) {
      result.reason = StopReason::EndToken;
      break;
    }
    sampler.accept(token);
    result.tokens.push_back(token);
    sink(token);
    if (static_cast<int>(result.tokens.size()) == options.max_tokens) break;
    token = choose_after({&token, 1});
    ++result.decode_tokens;
  }
  result.decode_seconds = decode.seconds();
  return result;
}

GenerateResult generate(model::Runner& runner, const tokenizer::Tokenizer& tokenizer,
                        std::span<const model::Token> prompt, const GenerateOptions& options,
                        const TextSink& sink) {
  tokenizer::StreamDecoder decoder(tokenizer);
  GenerateResult result = generate_tokens(runner, tokenizer, prompt, options,
                                          [&](model::Token token) { sink(decoder.push(token)); });
  sink(decoder.finish());
  return result;
}

}  // namespace redlite::engine
