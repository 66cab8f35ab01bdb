#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "model/runner.h"

namespace redlite::engine {

/// Sampling settings; defaults are greedy. Names, order and arithmetic as in llama.cpp.
struct SamplerOptions {
  float temperature = 0;        ///< <= 0: greedy
  int top_k = 40;               ///< 0: off
  float top_p = 0.95f;          ///< 1: off
  float min_p = 0.05f;          ///< 0: off
  float repeat_penalty = 1;     ///< 1: off
  float presence_penalty = 0;   ///< 0: off
  float frequency_penalty = 0;  ///< 0: off
  int penalty_last_n = 64;      ///< how far back the penalties look; 0: off, -1: everything
  uint32_t seed = 0;
};

/// Chooses tokens. The same logits, options, seed and history give the same tokens.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  /// Tells the penalties about a token of the prompt or the answer.
  void accept(model::Token token);
  model::Token sample(std::span<const float> logits);

 private:
  SamplerOptions options_;
  std::mt19937 random_;
  std::vector<model::Token> history_;
};

}  // namespace redlite::engine
