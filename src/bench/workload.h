#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/replay.h"
#include "engine/sampler.h"
#include "model/runner.h"

namespace redlite::bench {

/// `n` token ids drawn evenly from [0, n_vocab): the same for the same seed, as other benchmarks' prompts
/// are.
std::vector<model::Token> random_tokens(int n, int n_vocab, uint32_t seed);

/// A number for some logits' exact bits: a run that computes something else gets another one.
uint64_t hash(std::span<const float> logits);

/// A text to decode, with what its logits must be and what it needs.
struct Text {
  std::vector<model::Token> tokens;
  std::vector<uint64_t> hashes;       ///< of the logits after each token
  std::vector<TokenExperts> experts;  ///< that each token selected
};

/// Chooses the tokens of a text: sampled at temperature 1, for greedy text can run in a circle, and then a
/// cache of experts hits everything. End tokens are written like others.
class Writer {
 public:
  explicit Writer(int n_vocab);
  model::Token first() const { return first_; }
  model::Token next(std::span<const float> logits) { return sampler_.sample(logits); }

 private:
  model::Token first_;
  engine::Sampler sampler_;
};

/// Notes the experts that a runner selects while this lives, as its tap.
class ExpertsTap {
 public:
  explicit ExpertsTap(model::Runner& runner);
  ~ExpertsTap() { runner_.set_tap({}); }
  ExpertsTap(const ExpertsTap&) = delete;
  ExpertsTap& operator=(const ExpertsTap&) = delete;

  /// Those since the last call.
  TokenExperts take() { return std::exchange(experts_, {}); }

 private:
  model::Runner& runner_;
  TokenExperts experts_;
};

/// Hashes of what was computed, by name. What a name's first hash is, all later ones must be.
class Fingerprints {
 public:
  /// Throws Error if `what` had another hash before.
  void check(const std::string& what, uint64_t value);

 private:
  std::map<std::string, uint64_t> known_;
};

}  // namespace redlite::bench
