#pragma once

#include "gpu/simt.h"

/// Activations of one token in a block's shared memory.
///
/// For products with quantised weights they are rounded to 8 bits with a scale for each strip of 16 values,
/// as on the CPU (cpu/kernels/layout.h), and to the same bits.
namespace redlite::gpu {

/// All kernels that reduce over a block have this many threads, so that the order of their sums is one.
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / 32;

/// Sums over the block; every thread gets the result. `scratch` [kBlockWarps] is free for reuse after the
/// next sync_block().
RL_DEVICE inline float block_sum(float value, float* scratch) {
  const float sum = simt::warp_sum(value);
  if (simt::lane_index() == 0) scratch[simt::warp_index()] = sum;
  simt::sync_block();
  float total = 0;
  for (int i = 0; i < kBlockWarps; ++i) total += scratch[i];
  return total;
}

/// 1 / sqrt(mean(x^2) + eps) of x[n].
RL_DEVICE inline float rms_scale(const float* x, int n, float eps, float* scratch) {
  float sum = 0;
  for (int i = simt::thread_index(); i < n; i += kBlockThreads) sum = simt::fma(x[i], x[i], sum);
  return simt::reciprocal_sqrt(block_sum(sum, scratch) / static_cast<float>(n) + eps);
}

class QuantizedActivations {
 public:
  static RL_HOST_DEVICE size_t bytes(int n) { return static_cast<size_t>((n + 63) / 64 * 4) * 24; }

  /// In `memory` of bytes(n), 16-byte aligned.
  RL_DEVICE QuantizedActivations(std::byte* memory, int n)
      : q_(reinterpret_cast<simt::U32x4*>(memory)),
        scale_(reinterpret_cast<float*>(q_ + strips(n))),
        sum_(scale_ + strips(n)) {}

  /// Fills them with value(i) for i < n, with all threads of the block; behind it comes a sync_block().
  template <typename Value>
  RL_DEVICE void fill(int n, Value value) {
    const int words = strips(n) * 4;
    for (int base = 0; base < words; base += kBlockThreads) {
      // Four threads share a strip.
      const int word = base + simt::thread_index();
      float v[4];
      float largest = 0;
      for (int i = 0; i < 4; ++i) {
        v[i] = 4 * word + i < n ? value(4 * word + i) : 0.0f;
        const float magnitude = v[i] < 0 ? -v[i] : v[i];
        largest = largest < magnitude ? magnitude : largest;
      }
      largest = simt::warp_max<4>(largest);
      const bool zero = largest < 0x1p-100f;
      const float inverse = zero ? 0.0f : 127.0f / largest;
      uint32_t packed = 0;
      int sum = 0;
      for (int i = 0; i < 4; ++i) {
        const int q = simt::round_to_int(v[i] * inverse);
        packed |= (static_cast<uint32_t>(q) & 0xffu) << (8 * i);
        sum += q;
      }
      sum = simt::warp_sum<4>(sum);
      if (word < words) {
        q_[place(word / 4)].v[word % 4] = packed;
        if (word % 4 == 0) {
          const float scale = zero ? 0.0f : largest / 127.0f;
          scale_[word / 4] = scale;
          sum_[word / 4] = scale * static_cast<float>(sum);
        }
      }
    }
  }

  RL_DEVICE const simt::U32x4& q(int strip) const { return q_[place(strip)]; }
  RL_DEVICE float scale(int strip) const { return scale_[strip]; }
  /// scale times the sum of the strip's integers
  RL_DEVICE float sum(int strip) const { return sum_[strip]; }

 private:
  static RL_DEVICE int strips(int n) { return (n + 63) / 64 * 4; }
  /// Where a strip's integers lie: threads that read strip s of units of 1, 2 or 4 strips find them in
  /// different banks.
  static RL_DEVICE int place(int strip) { return strip ^ ((strip >> 3) & 3); }

  simt::U32x4* q_;
  float* scale_;
  float* sum_;
};

}  // namespace redlite::gpu
