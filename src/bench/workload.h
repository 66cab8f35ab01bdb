#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/replay.h"
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

/// Has a runner write n tokens on from where it stands: sampled at temperature 1, for greedy text can run in
/// a circle, and then a cache of experts hits everything. End tokens are written like others. `progress` is
/// told of each token.
Text write_text(model::Runner& runner, int n, int n_vocab, const std::function<void()>& progress);

/// Hashes of what was computed, by name. What a name's first hash is, all later ones must be.
class Fingerprints {
 public:
  /// Throws Error if `what` had another hash before.
  void check(const std::string& what, uint64_t value);

 private:
  std::map<std::string, uint64_t> known_;
};

}  // namespace redlite::bench
