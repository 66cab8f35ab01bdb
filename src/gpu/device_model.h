#pragma once

#include <span>
#include <vector>

#include "gpu/arena.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/slots.h"
#include "model/model.h"

namespace redlite::gpu {

/// Matrices multiplied with one input in one launch, cut into tiles of rows.
struct Projection {
  ProjectPart parts[kMaxProjectParts];
  int n_parts = 0;
  int n_tiles = 0;
  int tile_rows = 0;
  int rows = 0;  ///< of all of them: their results lie one after another
};

struct DeviceAttention {
  Projection qkv;     ///< n_embd -> q (gated: per head q, gate), k, v
  Projection output;  ///< n_heads * head_dim -> n_embd
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
};

struct DeviceDeltaNet {
  Projection in;      ///< n_embd -> what `heads` says
  Projection output;  ///< value_dim -> n_embd
  const DeltaHead* heads = nullptr;
  const float* conv = nullptr;  ///< [conv_kernel][conv_dim]
  const float* dt = nullptr;
  const float* a = nullptr;
  const float* norm = nullptr;
};

struct DeviceLayer {
  const float* attn_norm = nullptr;
  const float* ffn_norm = nullptr;
  DeviceAttention attention;      ///< used when Config::layers says Attention
  DeviceDeltaNet delta;           ///< used when it says DeltaNet
  const float* router = nullptr;  ///< [n_experts (+ 1: the shared expert's gate)][n_embd]
  LayerExperts experts;
  SlotTable table{};  ///< Residency::device only
  const std::byte* host =
      nullptr;  ///< ... all experts, as kernels read them from host memory: slot e is expert e
};

/// Where the routed experts are: all in device memory, or all in page-locked host memory with a cache on the
/// device that the device manages itself.
enum class Residency : uint8_t { full, device };

struct ExpertPlacement {
  Residency residency = Residency::full;
  uint64_t cache_bytes = 0;  ///< of device memory for Residency::device; each layer gets its share
};

/// What a cache did since the runner was made.
struct SlotStatistics {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t bytes_copied = 0;  ///< from host memory, for misses
};

/// A model's weights in device memory, in planes. The embedding stays in the file.
class DeviceModel {
 public:
  DeviceModel(const model::Model& model, Device& device, Stream& stream, const ExpertPlacement& placement);

  /// Device memory for all experts, and the least cache (each layer's experts of one token).
  static uint64_t expert_bytes(const model::Model& model);
  static uint64_t least_cache_bytes(const model::Model& model);

  Residency residency() const { return residency_; }
  SlotStatistics statistics(Stream& stream) const;

  std::span<const DeviceLayer> layers() const { return layers_; }
  const DeviceLayer& layer(int l) const { return layers_[static_cast<size_t>(l)]; }
  const float* output_norm() const { return output_norm_; }
  const Projection& output() const { return output_; }
  const Codebooks* codebooks() const { return codebooks_.as<Codebooks>(); }

 private:
  class Upload;

  void place_experts(const model::Model& model, int layer, Device& device, Stream& stream, Upload& upload,
                     const ExpertPlacement& placement);

  Residency residency_;
  Buffer codebooks_;
  Arena dense_, experts_;
  std::vector<HostBuffer> host_;  ///< Residency::device: a layer's experts
  uint64_t* counters_ = nullptr;  ///< [n_layers][2]: hits, misses
  std::vector<DeviceLayer> layers_;
  const float* output_norm_ = nullptr;
  Projection output_;
};

}  // namespace redlite::gpu
