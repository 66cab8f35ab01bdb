#include "gpu/sequence.h"

#include <array>

#include "base/error.h"

namespace redlite::gpu {

Sequence::Sequence(Device& device, const model::Config& c, int capacity, bool half_kv)
    : capacity_(capacity), half_kv_(half_kv) {
  std::array<size_t, 2> seen{};
  for (const model::LayerKind kind : c.layers) index_in_kind_.push_back(seen[static_cast<size_t>(kind)]++);
  const size_t attention = seen[static_cast<size_t>(model::LayerKind::Attention)];
  const size_t delta = seen[static_cast<size_t>(model::LayerKind::DeltaNet)];
  n_planes_ = attention * 2 * static_cast<size_t>(c.n_kv_heads);
  row_bytes_ = static_cast<size_t>(c.head_dim) * (half_kv ? 2 : 4);
  kv_bytes_ = static_cast<size_t>(capacity) * static_cast<size_t>(c.n_kv_heads) * row_bytes_;
  history_size_ =
      delta == 0 ? 0 : 2 * static_cast<size_t>(c.conv_kernel - 1) * static_cast<size_t>(c.conv_dim());
  layer_size_ = history_size_ + static_cast<size_t>(c.value_dim()) * static_cast<size_t>(c.state_dim);
  kv_ = device.allocate(attention * 2 * kv_bytes_, "the K/V cache");
  recurrent_ = device.allocate(delta * layer_size_ * sizeof(float), "the DeltaNet states");
}

void Sequence::reset(Stream& stream) {
  if (recurrent_.bytes() > 0) stream.fill(recurrent_.as(), 0, recurrent_.bytes());
  stream.synchronize();
  position = 0;
}

void Sequence::save(Stream& stream, int n, std::span<std::byte> out) const {
  const size_t bytes = static_cast<size_t>(n) * row_bytes_;  // of a plane
  RL_CHECK(n >= 0 && n <= capacity_ && out.size() == bytes * n_planes_, "{} positions of {}", n, capacity_);
  const WaitAtExit wait(stream);
  for (size_t i = 0; i < n_planes_ && n > 0; ++i) stream.copy(&out[i * bytes], plane(i), bytes);
  stream.synchronize();
}

void Sequence::load(Stream& stream, int n, std::span<const std::byte> bytes) {
  const size_t size = static_cast<size_t>(n) * row_bytes_;
  RL_CHECK(n >= 0 && n <= capacity_ && bytes.size() == size * n_planes_, "{} positions of {}", n, capacity_);
  const WaitAtExit wait(stream);
  for (size_t i = 0; i < n_planes_ && n > 0; ++i) stream.copy(plane(i), &bytes[i * size], size);
  stream.synchronize();
  position = n;
}

}  // namespace redlite::gpu
