#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cpu/cpu_runner.h"
#include "machine/disk.h"
#include "model/model.h"

namespace redlite::plan {

struct Options {
  int context = 4096;
  int prompt = 512;  ///< tokens of the prompt whose speed is predicted
  int threads = 0;   ///< 0: one for each core
  cpu::KvType kv = cpu::KvType::F16;
};

/// A size of the cache, with what it takes and gives.
struct Choice {
  std::optional<uint64_t> cache_mib;                                   ///< nullopt: all experts, mapped
  uint64_t cache = 0, dense = 0, state = 0, scratch = 0, program = 0;  ///< bytes
  bool fits = false;         ///< into the memory that is free, with a reserve
  double hit_rate = 1;       ///< of a decoded token's selections
  double prefill_tok_s = 0;  ///< 0: it does not fit
  double decode_tok_s = 0;

  uint64_t total() const { return cache + dense + state + scratch + program; }
};

struct Plan {
  uint64_t available = 0;       ///< bytes of memory free
  double memory_bandwidth = 0;  ///< bytes a second
  size_t disk_block = 0;        ///< bytes of a read
  machine::DiskSpeed disk;
  uint64_t kv_per_position = 0;
  int threads = 0;
  std::string kernels;
  /// The model was run at each choice, because it is small; otherwise a probe was, and the rest follows.
  bool measured = false;
  std::vector<Choice> choices;           ///< by cache, largest first
  std::optional<size_t> recommendation;  ///< nullopt: nothing fits
};

/// Told what goes on and how much of it is done, in parts of 1.
using Report = std::function<void(const std::string& what, double part)>;

/// Models up to this size are simply run at each choice.
inline constexpr uint64_t kSmall = uint64_t{128} << 20;

/// Throws Error when the options ask for more context than the model has, or for a prompt beyond it.
void check(const model::Model& model, const Options& options);

/// Looks at the machine and runs the model for some seconds. Throws Error when the model cannot be run at
/// all.
Plan make_plan(const model::Model& model, const Options& options, const Report& report);

struct Probes;
/// Of a model, what a prediction needs.
struct Shape {
  int n_layers = 0, n_experts = 0, n_used = 0;
  double expert_bytes = 0;  ///< of one expert, in the mean of the layers
  uint64_t full_bytes = 0;  ///< of a cache that holds all
};
/// What follows for a choice from probes: hit_rate and the speeds. All mapped needs a probe of that.
void predict(const Shape& shape, int n_prompt, const Probes& probes, Choice& choice);

/// The sizes that a plan considers and the memory of each, without running anything.
std::vector<Choice> choices_for(const model::Model& model, const Options& options, uint64_t available);

/// The fastest of what fits, the first where the gain is not worth speaking of; nullopt: nothing fits.
template <typename C>
std::optional<size_t> recommended(const std::vector<C>& choices) {
  constexpr double kWorthIt = 1.05;
  std::optional<size_t> best;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].fits && (!best || choices[i].decode_tok_s > kWorthIt * choices[*best].decode_tok_s))
      best = i;
  }
  return best;
}

}  // namespace redlite::plan
