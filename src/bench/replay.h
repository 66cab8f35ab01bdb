#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"

namespace redlite::bench {

/// The experts that one token selects: `n_experts_used` ids for each layer, in the layers' order.
using TokenExperts = std::vector<int>;

/// Reads the weights that decoded tokens need from where they lie in memory, and does nothing with them.
///
/// The floor (Traffic) supposes that all memory is as fast as one gibibyte read again and again. A large
/// file's pages may not be: part of that gibibyte comes from the processor's last cache, and addresses that
/// lie far apart cost lookups in page tables, dearly so under some hypervisors. How long the bare reads take
/// says what an engine could reach on these pages at best.
class Replay {
 public:
  /// Where an expert's matrices lie now; nullopt: not in memory. Called by several threads at once.
  using Find = std::function<std::optional<model::Model::Expert>(int layer, int expert)>;

  /// Reads with `threads` threads: as many as the runner has.
  Replay(const model::Model& model, Find find, int threads);

  /// Seconds for the weights of these tokens, one after another: all dense matrices and those of each token's
  /// experts that are in memory, every matrix divided among the threads, which wait for each other only at
  /// the end.
  double read(std::span<const TokenExperts> tokens) const;

 private:
  void read_token(const TokenExperts& experts, size_t thread) const;

  size_t used_;  ///< experts that a token selects in a layer
  Find find_;
  size_t threads_;
  std::vector<model::Matrix> dense_;
};

}  // namespace redlite::bench
