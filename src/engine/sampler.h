#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/runner.h"

namespace redlite::engine {

/// Sampling settings; the temperature's default is greedy. Names, order and arithmetic as in llama.cpp.
struct SamplerOptions {
  float temperature = 0;        ///< <= 0: greedy
  int top_k = 40;               ///< <= 0: off
  float top_p = 0.95f;          ///< >= 1: off
  float min_p = 0.05f;          ///< <= 0: off
  float repeat_penalty = 1;     ///< 1: off
  float presence_penalty = 0;   ///< 0: off
  float frequency_penalty = 0;  ///< 0: off
  int penalty_last_n = 64;      ///< how far back the penalties look; 0: off, -1: everything
  uint32_t seed = 0;
};

/// Chooses tokens: penalties, top-k, top-p, min-p, temperature, then one draw. The same logits, options, seed
/// and history give the same tokens, on any machine; of equal logits the lower id goes first.
class Sampler {
 public:
  /// Throws Error for settings that are no numbers, and for a repeat penalty that is not above 0.
  explicit Sampler(const SamplerOptions& options);

  /// Tells the penalties about a token of the prompt or the answer. Every token that sample() returns and
  /// that is used must be accepted too.
  void accept(model::Token token);

  /// One of the ids [0, logits.size()); `logits` is not empty. Throws Error if no logit is finite, which only
  /// damaged weights can cause.
  model::Token sample(std::span<const float> logits);
  /// Whether sample() is best_token(), whatever was accepted.
  bool greedy() const { return options_.temperature <= 0 && !penalizes(); }

 private:
  struct Candidate {
    model::Token token;
    float logit;
    float p;
  };

  bool penalizes() const;
  void take_all(std::span<const float> logits);
  bool take_likely(std::span<const float> logits);
  void apply_penalties();
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void apply_temperature();
  model::Token draw();

  void softmax();
  float max_logit() const;
  void sort_front(size_t target);

  const SamplerOptions options_;
  std::mt19937 random_;
  std::deque<model::Token> window_;               ///< the tokens that the penalties look at
  std::unordered_map<model::Token, int> counts_;  ///< how often each of them is there
  std::vector<Candidate> candidates_;             ///< of the call of sample() that is running
  std::vector<float> maxima_, order_;             ///< of pieces of its logits
  size_t sorted_ = 0;                             ///< how many of them are sorted, from the front
};

}  // namespace redlite::engine
