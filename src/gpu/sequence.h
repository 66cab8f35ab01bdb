#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/device.h"
#include "model/config.h"

namespace redlite::gpu {

/// The state of one sequence in device memory.
class Sequence {
 public:
  Sequence(Device& device, const model::Config& config, int capacity, bool half_kv);

  int position = 0;   ///< tokens so far
  uint32_t flip = 0;  ///< Step::flip of the next pass

  int capacity() const { return capacity_; }
  bool half_kv() const { return half_kv_; }
  /// [n_kv_heads][capacity][head_dim] of an attention layer.
  void* keys(int layer) const { return kv_.as() + 2 * kv_bytes_ * index(layer); }
  void* values(int layer) const { return kv_.as() + 2 * kv_bytes_ * index(layer) + kv_bytes_; }
  /// [2][conv_kernel - 1][conv_dim] of a DeltaNet layer.
  float* history(int layer) const { return recurrent_.as<float>() + layer_size_ * index(layer); }
  /// [n_v_heads][state_dim][state_dim] of a DeltaNet layer.
  float* matrices(int layer) const { return history(layer) + history_size_; }

  size_t bytes() const { return kv_.bytes() + recurrent_.bytes(); }
  /// All that is overwritten from token to token; keys and values are only added.
  const Buffer& recurrent() const { return recurrent_; }
  /// Back to no tokens.
  void reset(Stream& stream);

  /// Of all layers' keys and values of a position.
  size_t position_bytes() const { return n_planes_ * row_bytes_; }
  /// Keys and values of the first n positions, [layer][keys, values][n_kv_heads][n][head_dim], and back.
  void save(Stream& stream, int n, std::span<std::byte> out) const;
  void load(Stream& stream, int n, std::span<const std::byte> bytes);

 private:
  size_t index(int layer) const { return index_in_kind_[static_cast<size_t>(layer)]; }
  std::byte* plane(size_t number) const {
    return kv_.as() + number * static_cast<size_t>(capacity_) * row_bytes_;
  }

  int capacity_;
  bool half_kv_;
  std::vector<size_t> index_in_kind_;
  size_t kv_bytes_;              ///< of a layer's keys or its values
  size_t n_planes_, row_bytes_;  ///< a plane: all positions' rows of a head's keys or values
  size_t history_size_, layer_size_;
  Buffer kv_, recurrent_;
};

}  // namespace redlite::gpu
