#pragma once

#include <type_traits>

#include "gpu/kernels/activations.h"
#include "gpu/kernels/units.h"
#include "gpu/simt.h"

/// A thread's part of the product of a row with the activations in shared memory, for every type:
///     RowDot<T> row(w, books, first_row, lane, lanes);   // starts to load the first unit
///     x.fill(...); sync_block();                          // RowDot<T>::Activations x
///     sum = warp_sum(row.dot(x, next_row), lanes);        // and starts to load what comes next
namespace redlite::gpu {

/// The part of the dot product that one unit contributes, added to `sum`; `strip` is the number of its first
/// strip of activations.
template <quant::Type T>
RL_DEVICE inline float unit_dot(const Unit<T>& unit, const Codebooks* books, const QuantizedActivations& x,
                                int strip, float sum) {
  UnitValues<Unit<T>::kValues> w;
  unit.unpack(books, w);
  for (int s = 0; s < UnitValues<Unit<T>::kValues>::kStrips; ++s) {
    const simt::U32x4 q = x.q(strip + s);
    int dot = 0;
    for (int j = 0; j < 4; ++j) dot = simt::dot4(w.q[4 * s + j], q.v[j], dot);
    sum = simt::fma(static_cast<float>(dot) * x.scale(strip + s), w.scale[s], sum);
    if constexpr (Unit<T>::kHasMin) sum = simt::fma(-w.min[s], x.sum(strip + s), sum);
  }
  return sum;
}

/// Quantised types.
template <quant::Type T>
class QuantizedRowDot {
 public:
  using Activations = QuantizedActivations;

  RL_DEVICE QuantizedRowDot(const PlaneMatrix& w, const Codebooks* books, int row, int lane, int lanes)
      : w_(w), books_(books), row_(row), lane_(lane), lanes_(lanes), units_(w.cols / Unit<T>::kValues) {
    next_ = fetch(row, lane);
  }

  /// This thread's share of the current row, whose successor is `next_row` (out of range: none).
  RL_DEVICE float dot(const QuantizedActivations& x, int next_row) {
    float sum = 0;
    for (int u = lane_; u < units_; u += lanes_) {
      const Unit<T> unit = next_;
      next_ = u + lanes_ < units_ ? fetch(row_, u + lanes_) : fetch(next_row, lane_);
      if (row_ < w_.rows) sum = unit_dot<T>(unit, books_, x, u * (Unit<T>::kValues / 16), sum);
    }
    row_ = next_row;
    return sum;
  }

 private:
  RL_DEVICE Unit<T> fetch(int row, int unit) const {
    if (row >= w_.rows || unit >= units_) return {};
    return Unit<T>::load(
        w_, static_cast<uint32_t>(row) * static_cast<uint32_t>(units_) + static_cast<uint32_t>(unit));
  }

  const PlaneMatrix& w_;
  const Codebooks* books_;
  int row_, lane_, lanes_, units_;
  Unit<T> next_;
};

/// Activations as they are, for weights of floats.
class FloatActivations {
 public:
  static RL_HOST_DEVICE size_t bytes(int n) { return static_cast<size_t>((n + 3) / 4) * 16; }
  RL_DEVICE FloatActivations(std::byte* memory, int /*n*/) : x_(reinterpret_cast<float*>(memory)) {}
  template <typename Value>
  RL_DEVICE void fill(int n, Value value) {
    for (int i = simt::thread_index(); i < n; i += kBlockThreads) x_[i] = value(i);
  }
  RL_DEVICE void fill(int n, const BlockVector& x) {
    for (int k = 0; k < BlockVector::kWords; ++k) {
      const int i = 4 * (simt::thread_index() + k * kBlockThreads);
      if (i < n) *reinterpret_cast<simt::F32x4*>(x_ + i) = x.v[k];
    }
  }
  RL_DEVICE float operator[](int i) const { return x_[i]; }

 private:
  float* x_;
};

/// F32, F16 and BF16: in steps of 16 bytes where rows are aligned to that, else value by value; the order of
/// the sum is the same, 16 bytes a thread in turn.
template <quant::Type T>
class FloatRowDot {
 public:
  using Activations = FloatActivations;

  RL_DEVICE FloatRowDot(const PlaneMatrix& w, const Codebooks* /*books*/, int row, int lane, int lanes)
      : w_(w), row_(row), lane_(lane), lanes_(lanes) {}

  RL_DEVICE float dot(const FloatActivations& x, int next_row) {
    float sum = 0;
    if (row_ < w_.rows) {
      const Value* row = w_.at<Value>(0) + static_cast<uint64_t>(row_) * static_cast<uint64_t>(w_.cols);
      if (w_.cols % kStep == 0) {
        for (int i = lane_ * kStep; i < w_.cols; i += lanes_ * kStep) {
          const Step step = simt::load_once(reinterpret_cast<const Step*>(row + i));
          for (int j = 0; j < kStep; ++j) sum = simt::fma(as_float(step.v[j]), x[i + j], sum);
        }
      } else {
        for (int i = lane_ * kStep; i < w_.cols; i += lanes_ * kStep) {
          for (int j = i; j < w_.cols && j < i + kStep; ++j) {
            sum = simt::fma(as_float(simt::load_cached(row + j)), x[j], sum);
          }
        }
      }
    }
    row_ = next_row;
    return sum;
  }

 private:
  using Value = std::conditional_t<T == quant::Type::F32, float, uint16_t>;
  static constexpr int kStep = 16 / sizeof(Value);
  struct alignas(16) Step {
    Value v[kStep];
  };
  static RL_DEVICE float as_float(Value v) {
    if constexpr (T == quant::Type::F32) return v;
    if constexpr (T == quant::Type::F16) return simt::half_to_float(v);
    if constexpr (T == quant::Type::BF16) return simt::bfloat_to_float(v);
  }

  const PlaneMatrix& w_;
  int row_, lane_, lanes_;
};

template <quant::Type T>
inline constexpr bool kIsFloat = T == quant::Type::F32 || T == quant::Type::F16 || T == quant::Type::BF16;

template <quant::Type T>
using RowDot = std::conditional_t<kIsFloat<T>, FloatRowDot<T>, QuantizedRowDot<T>>;

}  // namespace redlite::gpu
