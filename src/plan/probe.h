#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cpu/cpu_runner.h"
#include "model/model.h"

namespace redlite::plan {

/// What a short run of a model with a cache of some size, or with all experts mapped, told about this
/// machine: enough to say how long other runs take.
///
/// A prompt of n tokens that use d different experts takes n * prompt_token_seconds + d * expert_seconds:
/// weights are read once for all tokens of a chunk.
struct Probe {
  double part = 1;  ///< of all experts that the cache held

  double token_seconds = 0;  ///< a decoded token, with its misses
  double hit_rate = 1;       ///< ... of its selections, prefetch included
  /// [i]: part of the selections that a cache of i experts a layer misses without prefetch, least recently
  /// used given away first; beyond what the run has seen a straight line to none.
  std::vector<double> misses;

  double prompt_token_seconds = 0;
  double expert_seconds = 0;
  double miss_bytes_per_second = 0;  ///< at which a prompt gets the experts that it waits for
  double spread = 0;  ///< experts of a layer that random tokens choose from as if evenly: at most all of them
};

/// Probes of a cache of the least and of the largest size that is foreseen, perhaps the same, and of all
/// experts mapped, if they fit.
struct Probes {
  Probe least, most;
  std::optional<Probe> mapped;
};

/// Runs a model as the benchmark does, but shorter: prompts of random tokens, of few and of up to 512, and a
/// text. `cache_bytes`: of a cache; nullopt: all experts where they are mapped. `n_prompt`: tokens
/// of the prompts to be foreseen. `progress` is told what is done. Takes some seconds.
Probe probe(const model::Model& model, cpu::CpuOptions options, std::optional<uint64_t> cache_bytes,
            int n_prompt, double disk_bytes_per_second, const std::function<void(double part)>& progress);

}  // namespace redlite::plan
