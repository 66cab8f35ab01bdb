#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_pages.h"
#include "cpu/cpu_runner.h"
#include "model/config.h"
#include "model/runner.h"

namespace redlite::cpu {

/// Keys and values of the attention layers: for each layer and K/V head the rows of all positions one after
/// another, as attention streams them. Address space for `capacity` positions is reserved at once; memory is
/// taken as positions are written.
class KvCache {
 public:
  KvCache(const model::Config& config, KvType type, int capacity);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  static uint64_t bytes_needed(const model::Config& config, KvType type, int capacity);

  bool f16() const { return type_ == KvType::F16; }
  /// Row of a position; the following positions' rows lie behind it. `index` counts attention layers.
  const void* k(int index, int head, int position) const { return row(index, head, 0, position); }
  const void* v(int index, int head, int position) const { return row(index, head, 1, position); }
  void store(int index, int head, int position, const float* k, const float* v);

  uint64_t bytes_per_position() const { return bytes_per_position_; }
  /// The rows of the first n positions, [plane][n][head_dim], and back.
  void save(int n, std::span<std::byte> out) const;
  void load(int n, std::span<const std::byte> bytes);

 private:
  std::byte* row(int index, int head, int which, int position) const;
  std::byte* plane_rows(size_t plane) const;

  KvType type_;
  int capacity_;
  int n_heads_;
  int head_dim_;
  uint64_t bytes_;
  uint64_t bytes_per_position_;
  std::byte* data_ = nullptr;
};

/// Recurrent state of the DeltaNet layers; zero before the first token.
class DeltaState {
 public:
  explicit DeltaState(const model::Config& config);
  static uint64_t bytes_needed(const model::Config& config);

  void reset();
  /// All of it, to be copied or restored.
  std::span<float> values() { return values_.span(); }
  std::span<const float> values() const { return values_.span(); }
  /// Input of the convolution at one of the last conv_kernel - 1 positions, which share their memory in turn:
  /// [conv_dim], channels in the order q, k, v. `index` counts DeltaNet layers; positions before 0 are zero.
  float* input(int index, int position) {
    const int place = (position + taps_before_) % taps_before_;
    return layer(index) + static_cast<size_t>(place) * conv_dim_;
  }
  /// S[state_dim][state_dim] of a V head, rows along k.
  float* matrix(int index, int v_head) {
    return layer(index) + history_size_ + matrix_size_ * static_cast<size_t>(v_head);
  }

 private:
  float* layer(int index) { return values_.data() + layer_size_ * static_cast<size_t>(index); }

  int taps_before_;  ///< conv_kernel - 1
  size_t conv_dim_;
  size_t history_size_;
  size_t matrix_size_;
  size_t layer_size_;
  HugeFloats values_;
};

/// The state of one sequence of the CPU runner.
class CpuSequence final : public model::Sequence {
 public:
  CpuSequence(const model::Config& config, KvType type, int capacity);

  int position() const override { return position_; }
  int capacity() const override { return capacity_; }
  void reset() override;
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;

  std::optional<StateBytes> state_bytes() const override;
  std::unique_ptr<model::Mark> load_mark(int position, std::span<const std::byte> bytes) const override;
  void save_positions(int n, std::span<std::byte> out) const override;
  void load_positions(int n, std::span<const std::byte> bytes) override;

  /// n tokens were appended.
  void advance(int n) { position_ += n; }

  KvCache kv;
  DeltaState delta;

 private:
  int capacity_;
  int position_ = 0;
};

}  // namespace redlite::cpu
