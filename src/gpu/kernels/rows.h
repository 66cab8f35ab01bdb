#pragma once

#include "gpu/kernels/block.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/dot.h"

/// Products of matrices of any type with activations in shared memory; for kernels only.
namespace redlite::gpu {

/// A vector in shared memory, as it is and rounded to 8 bits, for weights of either kind.
class Activations {
 public:
  static RL_HOST_DEVICE size_t bytes(int n) {
    return FloatActivations::bytes(n) + QuantizedActivations::bytes(n);
  }

  /// In `memory` of bytes(n), 16-byte aligned.
  RL_DEVICE Activations(std::byte* memory, int n)
      : values(reinterpret_cast<float*>(memory)),
        floats(memory, n),
        quantized(memory + FloatActivations::bytes(n), n),
        n_(n) {}

  /// Rounds values[n], which the caller has put there, with all threads of the block; a barrier before and
  /// one behind it.
  RL_DEVICE void quantize() {
    quantized.fill(n_, [x = values](int i) { return x[i]; });
  }

  float* values;
  FloatActivations floats;
  QuantizedActivations quantized;

 private:
  int n_;
};

namespace detail {

// Not inlined: 23 types in every kernel would take nvcc minutes.
template <quant::Type T>
RL_NOINLINE static RL_DEVICE void multiply_rows(const DeviceMatrix& m, int first, int end,
                                                const Activations& x, const Codebooks* books, float* out) {
  const int lane = simt::lane_index() % m.lanes, at_once = simt::kWarpSize / m.lanes;
  constexpr int kNone = 0x7fffffff;
  int row = first + simt::lane_index() / m.lanes;
  RowDot<T> dot(m.planes, books, row < end ? row : kNone, lane, m.lanes);
  for (int done = first; done < end; done += at_once) {
    const int next = row + at_once;
    float part;
    if constexpr (kIsFloat<T>) {
      part = dot.dot(x.floats, next < end ? next : kNone);
    } else {
      part = dot.dot(x.quantized, next < end ? next : kNone);
    }
    const float sum = simt::warp_sum(part, m.lanes);
    if (lane == 0 && row < end) out[row - first] = sum;
    row = next;
  }
}

}  // namespace detail

/// Asks for rows [first, first + n), as far as there are, of a plane to be brought into L2, by one thread.
RL_DEVICE inline void prefetch_rows(const DeviceMatrix& m, int plane, int first, int n) {
  const int end = first + n < m.planes.rows ? first + n : m.planes.rows;
  const uint32_t row = m.row_bytes[plane];
  if (row == 0 || first >= end) return;
  const uint64_t from = static_cast<uint64_t>(first) * row / 16 * 16;
  const uint64_t to = (static_cast<uint64_t>(end) * row + 15) / 16 * 16;
  simt::prefetch_l2(m.planes.data + m.planes.plane[plane] + from, static_cast<uint32_t>(to - from));
}

/// out[i] = m.row(first + i) . x for i < n as far as there are rows, by a warp, all of whose threads call
/// this with the same arguments.
RL_DEVICE inline void multiply_rows(const DeviceMatrix& m, int first, int n, const Activations& x,
                                    const Codebooks* books, float* out) {
  const int end = first + n < m.planes.rows ? first + n : m.planes.rows;
  switch (m.type) {
#define RL_CASE(T)     \
  case quant::Type::T: \
    return detail::multiply_rows<quant::Type::T>(m, first, end, x, books, out);
    RL_FOR_EACH_TYPE(RL_CASE)
#undef RL_CASE
  }
}

}  // namespace redlite::gpu
