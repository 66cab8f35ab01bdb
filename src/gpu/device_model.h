#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "experts/cache.h"
#include "experts/pool.h"
#include "gpu/arena.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/load_experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/slots.h"
#include "gpu/registered_files.h"
#include "model/model.h"

namespace redlite::gpu {

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
  SlotTable table{};      ///< Residency::device; with full only the counter of hits
  SlotTable ahead{};      ///< Residency::device, for predictions: the same slots, but a list of its own, and
                          ///< only its misses are counted
  ExpertSource source{};  ///< Residency::device: where it copies from
};

/// Where the routed experts are.
enum class Residency : uint8_t {
  full,    ///< all in device memory
  device,  ///< all in host memory that the device reads, with a cache that the device manages itself
  host,    ///< in the file, with caches on the host and on the device that the host manages
};
std::string_view residency_name(Residency residency);

/// What a cache did since the runner was made.
struct SlotStatistics {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t prefetched = 0;    ///< loads ahead of time
  uint64_t bytes_copied = 0;  ///< from host memory
};

/// The size classes of slots on the device, as of those in host memory: experts lie there in planes. Slots
/// are rounded up to a page, which is what experts::divide() counts in.
experts::SizeClasses device_slot_classes(const model::Model& model);

/// A model's weights in device memory, in planes. The embedding stays in the file.
class DeviceModel {
 public:
  /// Brings the dense weights there. One of the calls that place experts must follow.
  DeviceModel(const model::Model& model, Device& device, Stream& stream);

  /// All experts.
  void place_all();
  /// A cache that the device manages; each layer gets its share of the bytes. Throws Error if it is below
  /// least_cache_bytes().
  void place_cache(uint64_t bytes);
  /// Slots for a cache that the host manages, by `pool`.
  void place_slots(const experts::ExpertPool& pool);

  /// Device memory for all experts, and the least cache that the device manages: each layer's experts of one
  /// token.
  static uint64_t expert_bytes(const model::Model& model);
  static uint64_t least_cache_bytes(const model::Model& model);

  Residency residency() const { return residency_; }
  /// The device's cache has room for what is predicted besides what is needed.
  bool prefetching() const { return prefetching_; }
  /// Of the cache that the device manages; nothing elsewhere.
  SlotStatistics statistics(Stream& stream) const;
  /// What became of each expert, [n_layers][n_experts]: of tokens that were computed one by one. Not with
  /// Residency::host.
  std::vector<experts::ExpertUse> uses(Stream& stream) const;
  uint64_t dense_bytes() const { return dense_.bytes() + codebooks_.bytes(); }
  uint64_t cache_bytes() const { return experts_.bytes(); }

  /// The mapped files; Residency::device.
  const RegisteredFiles* files() const { return files_ ? &*files_ : nullptr; }
  /// In which slot each expert is, int32_t [n_layers][n_experts]: the tables' slot_of. Residency::device.
  const int32_t* slot_of() const { return layers_[0].table.slot_of; }
  /// How experts are brought into a layer's slots; what is to be brought is left to the caller.
  LoadExperts::Params load_params(int layer) const;
  /// The same of what `table`, one of the layer's two, lists.
  LoadExperts::Params load_params(int layer, const SlotTable& table) const;

  std::span<const DeviceLayer> layers() const { return layers_; }
  const DeviceLayer& layer(int l) const { return layers_[static_cast<size_t>(l)]; }
  const float* output_norm() const { return output_norm_; }
  const Projection& output() const { return output_; }
  const Codebooks* codebooks() const { return codebooks_.as<Codebooks>(); }

 private:
  class Upload;

  enum Counter : uint8_t { kHits, kMisses, kPrefetches, kCounters };
  void place_counters();
  uint32_t* counter(Counter which, size_t layer) const;

  const model::Model& model_;
  Device& device_;
  Stream& stream_;
  Residency residency_ = Residency::full;
  Buffer codebooks_;
  Arena dense_, experts_;
  std::optional<RegisteredFiles> files_;  ///< Residency::device
  uint32_t* counters_ = nullptr;          ///< [3][n_layers][n_experts]: hits, misses, prefetches; host: none
  bool prefetching_ = false;
  std::vector<DeviceLayer> layers_;
  const float* output_norm_ = nullptr;
  Projection output_;
};

}  // namespace redlite::gpu
