#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experts/cache.h"
#include "gpu/device.h"
#include "gpu/placement.h"
#include "gpu/profile.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::gpu {

struct GpuOptions {
  int context = 0;   ///< tokens the state can hold; 0: the model's own limit, at most 4096
  int batch = 2048;  ///< most tokens of one prefill chunk
  /// With a cache of experts: chunks of so many tokens bring all experts to the device, layer by layer. Of
  /// fewer tokens, where the host manages the cache, a chunk brings those that they select; where the device
  /// does, they are computed one by one from the cache.
  int streamed_from = 128;
  bool half_kv = false;  ///< keys and values in binary16
  ExpertChoice experts = {};
  bool concurrent = true;  ///< kernels start before those in front of them have ended; off: for comparisons
  bool profile = false;    ///< times each kernel, on its own
};

/// Bytes of device memory that are taken, all of them by one of these.
struct DeviceUse {
  uint64_t cache = 0;    ///< routed experts
  uint64_t dense = 0;    ///< dense weights, with the tables that go with them
  uint64_t state = 0;    ///< K/V and DeltaNet states
  uint64_t scratch = 0;  ///< buffers of the forward pass

  uint64_t total() const { return cache + dense + state + scratch; }
};

/// The runner on a GPU or its emulation: one captured graph for each token of decode, without a decision of
/// the CPU's in it. Owns the device and the state of one sequence. Where experts live changes no bit of the
/// output.
class GpuRunner final : public model::Runner {
 public:
  /// Brings the weights to the device. Throws Error for a model that the kernels are not made for, and when
  /// the device's memory does not suffice.
  GpuRunner(const model::Model& model, std::unique_ptr<Device> device, const GpuOptions& options);
  ~GpuRunner() override;

  std::span<const float> forward(std::span<const model::Token> tokens, model::LogitsFor which) override;
  model::Token forward_best(std::span<const model::Token> tokens) override;
  std::vector<model::Token> forward_best_together(std::span<const model::Part> parts) override;
  int position() const override;
  int capacity() const override;
  void reset() override;
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;
  std::unique_ptr<model::Sequence> make_sequence() override;
  std::string state_format() const override;

  const Device& device() const;
  Residency residency() const;
  /// Where the experts are and why, and how tokens are decoded with a cache that the host manages.
  std::string description() const;
  DeviceUse device_use() const;
  SlotStatistics slot_statistics() const;
  /// Bytes of experts that chunks of prompts took from host memory.
  uint64_t prompt_bytes() const;
  const HostDecode* host_decode() const;  ///< nullptr unless residency() is host
  /// Selections of experts so far, and those of them that were in slots when they were needed; none where all
  /// are resident.
  struct Selections {
    uint64_t hits = 0, all = 0;
  };
  Selections selections() const;
  /// What became of each expert, [n_layers][n_experts]. Chunks of a prompt are not counted.
  std::vector<experts::ExpertUse> expert_uses() const;
  /// The same in all: of the slots on the device. bytes_read: from the file where the host manages the cache,
  /// over the bus where the device does.
  experts::CacheStats cache_stats() const;
  /// A forward() of n tokens brings all experts over the bus, layer after layer.
  bool streams(int n) const;
  const Profile* profile() const;  ///< nullptr unless asked for
  /// Times each kernel from now on, from nothing; or no more. Not with Residency::host.
  void set_profile(bool on);
  /// Kernels of a token's graph; 0 before the first one, and where the host manages the cache.
  size_t graph_kernels() const;
  /// Tokens that were decoded by replaying a graph, and the GPU's time for them; what is missing from a
  /// token's time was spent by the host between them.
  struct GraphTime {
    uint64_t tokens = 0;
    double seconds = 0;
  };
  GraphTime graph_time() const;
  /// Launches so far that were allowed to start early.
  uint64_t early_starts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::gpu
