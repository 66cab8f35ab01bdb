#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "model/runner.h"
#include "tokenizer/tokenizer.h"

namespace redlite::engine {

struct GenerateOptions {
  int max_tokens = 256;
  SamplerOptions sampler;
  bool ignore_end = false;                     ///< go on past end-of-text tokens
  const std::atomic<bool>* cancel = nullptr;   ///< looked at between tokens
  std::span<const model::Token> history = {};  ///< what came before the prompt, for the sampler's penalties
};

/// Why a generation ended.
enum class StopReason : uint8_t { EndToken, MaxTokens, Cancelled };
std::string_view stop_reason_name(StopReason reason);

struct GenerateResult {
  std::vector<model::Token> tokens;  ///< generated ones; an end token is not among them
  StopReason reason = StopReason::MaxTokens;
  int prompt_tokens = 0;
  double prefill_seconds = 0;  ///< the prompt, up to the choice of the first token
  int decode_tokens = 0;       ///< forward passes of one token
  double decode_seconds = 0;   ///< ... and their time, sampling included
};

/// Receives text as soon as it is valid UTF-8 (possibly empty).
using TextSink = std::function<void(std::string_view text)>;

/// Receives each token that is no end token, as soon as it is chosen.
using TokenSink = std::function<void(model::Token token)>;

/// Appends `prompt` (not empty) to the runner's sequence, then samples and appends up to max_tokens tokens.
GenerateResult generate_tokens(model::Runner& runner, const tokenizer::Tokenizer& tokenizer,
                               std::span<const model::Token> prompt, const GenerateOptions& options,
                               const TokenSink& sink);

/// The same, with text instead of tokens.
GenerateResult generate(model::Runner& runner, const tokenizer::Tokenizer& tokenizer,
                        std::span<const model::Token> prompt, const GenerateOptions& options,
                        const TextSink& sink);

}  // namespace redlite::engine
