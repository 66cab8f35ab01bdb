#pragma once

#include "gpu/simt.h"

/// In front of a loop whose values are to stay in registers.
#ifdef __CUDACC__
#define RL_UNROLL _Pragma("unroll")
#define RL_PRAGMA(text) _Pragma(#text)
#define RL_UNROLL_BY(n) RL_PRAGMA(unroll n)
#else
#define RL_UNROLL
#define RL_UNROLL_BY(n)
#endif

/// Activations of one token, in a block's shared memory or, made by the kernel before, in device memory.
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

/// 1 / sqrt(mean(x^2) + eps) of x[n], 16-byte aligned. A thread has every 256th word of four values where n
/// is a multiple of that, else every 256th value.
RL_DEVICE inline float rms_scale(const float* x, int n, float eps, float* scratch) {
  float sum = 0;
  if (n % 4 == 0) {
    for (int i = 4 * simt::thread_index(); i < n; i += 4 * kBlockThreads) {
      const auto word = *reinterpret_cast<const simt::F32x4*>(x + i);
      for (int j = 0; j < 4; ++j) sum = simt::fma(word.v[j], word.v[j], sum);
    }
  } else {
    for (int i = simt::thread_index(); i < n; i += kBlockThreads) sum = simt::fma(x[i], x[i], sum);
  }
  return simt::reciprocal_sqrt(block_sum(sum, scratch) / static_cast<float>(n) + eps);
}

/// A vector of at most kMost values (a multiple of 4, 16-byte aligned) in the registers of a block: thread t
/// has words t, t + 256, ... of four values. All its loads are under way at once.
struct BlockVector {
  static constexpr int kWords = 4;
  static constexpr int kMost = kWords * kBlockThreads * 4;
  static RL_HOST_DEVICE bool holds(int n) { return n <= kMost && n % 4 == 0; }

  simt::F32x4 v[kWords];

  RL_DEVICE void load(const float* x, int n) {
    RL_UNROLL
    for (int k = 0; k < kWords; ++k) {
      const int i = 4 * (simt::thread_index() + k * kBlockThreads);
      v[k] = i < n ? *reinterpret_cast<const simt::F32x4*>(x + i) : simt::F32x4{};
    }
  }
  /// put(i, value) for each of its values.
  template <typename Put>
  RL_DEVICE void for_each(int n, Put put) const {
    RL_UNROLL
    for (int k = 0; k < kWords; ++k) {
      const int first = 4 * (simt::thread_index() + k * kBlockThreads);
      RL_UNROLL
      for (int i = 0; i < 4; ++i)
        if (first < n) put(first + i, v[k].v[i]);
    }
  }
  /// 1 / sqrt(mean of the squares + eps), as rms_scale() adds them up.
  RL_DEVICE float rms_scale(int n, float eps, float* scratch) const {
    float sum = 0;
    RL_UNROLL
    for (int k = 0; k < kWords; ++k) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) sum = simt::fma(v[k].v[i], v[k].v[i], sum);
    }
    return simt::reciprocal_sqrt(block_sum(sum, scratch) / static_cast<float>(n) + eps);
  }
  RL_DEVICE void multiply(float scale, const BlockVector& weight) {
    RL_UNROLL
    for (int k = 0; k < kWords; ++k) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) v[k].v[i] = v[k].v[i] * scale * weight.v[k].v[i];
    }
  }
};

/// The part of a vector that a unit of N weights is multiplied with, in registers.
template <int N>
struct UnitActivations {
  static constexpr int kStrips = N / 16;
  simt::U32x4 q[kStrips];
  float scale[kStrips];
  float sum[kStrips];
};

class QuantizedActivations {
 public:
  static constexpr int kStrip = 16;
  static RL_HOST_DEVICE int strips(int n) { return (n + 63) / 64 * 4; }
  static RL_HOST_DEVICE size_t bytes(int n) { return static_cast<size_t>(strips(n)) * 24; }

  /// In `memory` of bytes(n), 16-byte aligned.
  RL_DEVICE QuantizedActivations(std::byte* memory, int n)
      : q_(reinterpret_cast<simt::U32x4*>(memory)),
        scale_(reinterpret_cast<float*>(q_ + strips(n))),
        sum_(scale_ + strips(n)) {}

  /// Fills them with value(i) for i < n, with all threads of the block; behind it comes a sync_block().
  template <typename Value>
  RL_DEVICE void fill(int n, Value value) {
    const int words = strips(n) * 4;
    RL_UNROLL_BY(1)
    for (int base = 0; base < words; base += kBlockThreads) {
      const int word = base + simt::thread_index();
      simt::F32x4 v;
      for (int i = 0; i < 4; ++i) v.v[i] = 4 * word + i < n ? value(4 * word + i) : 0.0f;
      fill_word(static_cast<uint32_t>(word), static_cast<uint32_t>(words), v);
    }
  }
  /// The same from a block's registers, whose words of four values change(i, word) changes before, for those
  /// from value i < n on.
  template <typename Change>
  RL_DEVICE void fill(int n, const BlockVector& x, Change change) {
    const int words = strips(n) * 4;
    RL_UNROLL
    for (int k = 0; k < BlockVector::kWords; ++k) {
      if (k * kBlockThreads >= words) break;
      const int word = k * kBlockThreads + simt::thread_index();
      simt::F32x4 v = x.v[k];
      if (4 * word < n) change(4 * word, v);
      fill_word(static_cast<uint32_t>(word), static_cast<uint32_t>(words), v);
    }
  }

  /// One value of each thread of a warp: 16 neighbouring threads have a strip, whose last ones may be zeros
  /// behind the end; `there`: false for all 16 where there is no such strip.
  RL_DEVICE void put(int i, float value, bool there) {
    const float largest = simt::float_of_bits(simt::warp_max<kStrip>(there ? magnitude(value) : 0u));
    const bool zero = largest < 0x1p-100f;
    const int q = simt::round_to_int(value * (zero ? 0.0f : 127.0f / largest));
    const int sum = simt::warp_sum<kStrip>(there ? q : 0);
    if (!there) return;
    reinterpret_cast<uint8_t*>(q_ + place(i / kStrip))[i % kStrip] = static_cast<uint8_t>(q);
    if (i % kStrip == 0) {
      const float scale = zero ? 0.0f : largest / 127.0f;
      scale_[i / kStrip] = scale;
      sum_[i / kStrip] = scale * static_cast<float>(sum);
    }
  }

  template <int N>
  RL_DEVICE UnitActivations<N> unit(int number) const {
    using Unit = UnitActivations<N>;
    Unit out;
    // place() of them all: they lie in one group of eight.
    const int first = number * Unit::kStrips, turn = (first >> 3) & 3;
    RL_UNROLL
    for (int s = 0; s < Unit::kStrips; ++s) out.q[s] = q_[(first + s) ^ turn];
    if constexpr (N == 64) {
      const simt::F32x4 scale = reinterpret_cast<const simt::F32x4*>(scale_)[number];
      const simt::F32x4 sum = reinterpret_cast<const simt::F32x4*>(sum_)[number];
      RL_UNROLL
      for (int s = 0; s < 4; ++s) {
        out.scale[s] = scale.v[s];
        out.sum[s] = sum.v[s];
      }
    } else {
      RL_UNROLL
      for (int s = 0; s < Unit::kStrips; ++s) {
        out.scale[s] = scale_[number * Unit::kStrips + s];
        out.sum[s] = sum_[number * Unit::kStrips + s];
      }
    }
    return out;
  }

  /// The three parts as they lie in memory: integers, scales, sums (scale times the sum of the integers).
  RL_DEVICE simt::U32x4* integers() const { return q_; }
  RL_DEVICE float* scales() const { return scale_; }
  RL_DEVICE float* sums() const { return sum_; }

 private:
  /// |x| as an integer of the same order, which takes fewer instructions to compare.
  static RL_DEVICE uint32_t magnitude(float x) { return simt::bits_of_float(x) & 0x7fffffffu; }

  /// Four values; four neighbouring threads share a strip. Called by whole warps.
  RL_DEVICE void fill_word(uint32_t word, uint32_t words, const simt::F32x4& x) {
    uint32_t greatest = 0;
    RL_UNROLL
    for (int i = 0; i < 4; ++i) greatest = greatest < magnitude(x.v[i]) ? magnitude(x.v[i]) : greatest;
    const float largest = simt::float_of_bits(simt::warp_max<4>(greatest));
    const bool zero = largest < 0x1p-100f;
    const float inverse = zero ? 0.0f : 127.0f / largest;
    uint32_t packed = 0;
    int sum = 0;
    RL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int q = simt::round_to_int(x.v[i] * inverse);
      packed |= (static_cast<uint32_t>(q) & 0xffu) << (8 * i);
      sum += q;
    }
    sum = simt::warp_sum<4>(sum);
    if (word >= words) return;
    const uint32_t strip = word / 4;
    q_[place(static_cast<int>(strip))].v[word % 4] = packed;
    if (word % 4 == 0) {
      const float scale = zero ? 0.0f : largest / 127.0f;
      scale_[strip] = scale;
      sum_[strip] = scale * static_cast<float>(sum);
    }
  }

  /// Where a strip's integers lie: threads that read strip s of units of 1, 2 or 4 strips find them in
  /// different banks.
  static RL_DEVICE int place(int strip) { return strip ^ ((strip >> 3) & 3); }

  simt::U32x4* q_;
  float* scale_;
  float* sum_;
};

}  // namespace redlite::gpu
