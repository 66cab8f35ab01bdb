#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cpu/cpu_runner.h"
#include "model/model.h"

namespace redlite::plan {

/// What a short run of a model told about this machine: enough to say how long other runs take.
///
/// An expert that t tokens share takes expert_seconds + t * expert_token_seconds in a layer: weights are read
/// once, however many tokens they are multiplied with.
struct Probe {
  double token_seconds = 0;         ///< a decoded token whose experts are all in memory
  double prompt_token_seconds = 0;  ///< a token of a long prompt, its routed experts apart
  double expert_seconds = 0;        ///< of an expert used by any token
  double expert_token_seconds = 0;  ///< ... and of each token that uses it
  double miss_seconds = 0;  ///< what an expert that a cache lacks adds to a decoded token, prefetch included
  double miss_bytes_per_second = 0;  ///< at which a prompt gets the experts that it waits for
  double spread = 0;  ///< experts of a layer that random tokens choose from as if evenly: at most all of them
  /// [i]: part of the selections that a cache of i experts a layer misses, least recently used given away
  /// first; beyond what the run has seen a straight line to none.
  std::vector<double> misses;
};

/// Runs a model whose experts need not fit into memory: a random prompt, some tokens of text, the last of
/// them twice, and a prompt of one token over and over, which needs few experts. `cache_bytes` holds what 8
/// tokens use. `progress` is told what is done. Takes some seconds.
Probe probe(const model::Model& model, cpu::CpuOptions options, uint64_t cache_bytes,
            double disk_bytes_per_second, const std::function<void(double part)>& progress);

/// The positions of the context that a probe fills.
int probe_context();

}  // namespace redlite::plan
