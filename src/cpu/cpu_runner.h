#pragma once

#include <memory>
#include <string>

#include "cpu/weight_pages.h"
#include "experts/cache.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::cpu {

enum class KvType : uint8_t { F32, F16 };

struct CpuOptions {
  int context = 0;   ///< tokens the state can hold; 0: the model's own limit, at most 4096
  int batch = 2048;  ///< most tokens of one prefill chunk
  int threads = 0;   ///< 0: one for each core
  KvType kv = KvType::F32;
  experts::CacheOptions cache;
  std::string kernels;  ///< instruction set by name; empty: the best
};

/// Where the wall time of the forward passes since construction went, in seconds. The norm before a stage
/// belongs to it. The shared expert is computed in the same parallel regions as the routed ones.
struct StageTimes {
  double embedding = 0, attention = 0, delta_net = 0, router = 0, experts = 0, output = 0;
};

/// The production runner. Owns the threads, the expert cache, and the state of one sequence.
class CpuRunner final : public model::Runner {
 public:
  CpuRunner(const model::Model& model, const CpuOptions& options);
  ~CpuRunner() override;

  std::span<const float> forward(std::span<const model::Token> tokens, model::LogitsFor which) override;
  int position() const override;
  int capacity() const override;
  void reset() override;
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;
  int most_sequences() const override;
  std::unique_ptr<model::Sequence> make_sequence() override;
  std::span<const float> forward_together(std::span<const model::Part> parts) override;
  std::string state_format() const override;

  experts::CacheStats cache_stats() const;
  std::vector<experts::ExpertUse> expert_uses() const;  ///< [n_layers][n_experts]
  StageTimes stage_times() const;
  /// Where an expert's bytes lie until the next pass; nullopt: not in memory.
  std::optional<model::Model::Expert> expert_in_memory(int layer, int expert) const;
  std::string cache_io() const;  ///< how experts are read, see ExpertCache::io()
  WeightPages::Report weight_pages() const;
  void wait_for_weight_pages();  ///< until all mapped weights were brought into memory, if there is room
  std::string_view kernels() const;
  int threads() const;

  /// Memory this runner takes for a model and options, in bytes; the cache apart.
  struct Memory {
    uint64_t dense, state, scratch;
  };
  static Memory memory_needed(const model::Model& model, const CpuOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::cpu
