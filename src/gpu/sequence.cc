#include "gpu/sequence.h"

#include <array>

namespace redlite::gpu {

Sequence::Sequence(Device& device, const model::Config& c, int capacity, bool half_kv)
    : capacity_(capacity), half_kv_(half_kv) {
  std::array<size_t, 2> seen{};
  for (const model::LayerKind kind : c.layers) index_in_kind_.push_back(seen[static_cast<size_t>(kind)]++);
  const size_t attention = seen[static_cast<size_t>(model::LayerKind::Attention)];
  const size_t delta = seen[static_cast<size_t>(model::LayerKind::DeltaNet)];
  kv_bytes_ = static_cast<size_t>(capacity) * static_cast<size_t>(c.n_kv_heads) *
              static_cast<size_t>(c.head_dim) * (half_kv ? 2 : 4);
  history_size_ =
      delta == 0 ? 0 : 2 * static_cast<size_t>(c.conv_kernel - 1) * static_cast<size_t>(c.conv_dim());
  layer_size_ = history_size_ + static_cast<size_t>(c.value_dim()) * static_cast<size_t>(c.state_dim);
  kv_ = device.allocate(attention * 2 * kv_bytes_, "the K/V cache");
  recurrent_ = device.allocate(delta * layer_size_ * sizeof(float), "the DeltaNet states");
}

}  // namespace redlite::gpu
