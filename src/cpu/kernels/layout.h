#pragma once

#include <cstdint>

#include "cpu/kernels.h"

/// What the instruction sets share: the layout of activations and of unpacked weights, and with them the
/// order of every sum.
///
/// A row is cut into blocks of 256 values (the last one padded with zeros), a block into 16 lanes of 16
/// values. For a quantised weight block with integers w, scales ws[lane] and mins wm[lane], and activations
/// with integers q and scales xs[lane], a product adds to 16 binary32 accumulators, blocks in rising order:
///     dot  = sum over the lane's 16 values of w * q                    (an exact integer)
///     acc[lane] = fma(dot * xs[lane], ws[lane], acc[lane])
///     acc[lane] = fma(-wm[lane], scaled_sum[lane], acc[lane])          (types with mins)
/// and folds them in halves: j += j + 8, j += j + 4, j += j + 2, j += j + 1. Products with F32, F16 and BF16
/// weights follow model/router.h, which folds the same way.
namespace redlite::cpu {

inline constexpr int kBlockValues = 256;
inline constexpr int kLanes = 16;

/// 256 activations of one token. Values 4 j .. 4 j + 3 of all lanes lie together: one 8-bit dot product
/// instruction with a 512-bit register handles a quarter of every lane.
struct alignas(64) ActivationBlock {
  int8_t q[4][kLanes][4];  ///< q[j][lane][i] = value 16 lane + 4 j + i
  /// Minus 64 times the sum of the lane's q: what weights stored with an offset of 64 add too much.
  int32_t offset_64[kLanes];
  /// The same for an offset of 72: IQ1 for AVX-512, whose weights of odd numbers have an odd offset.
  int32_t offset_72[kLanes];
  float scale[kLanes];
  float scaled_sum[kLanes];  ///< scale * sum of the lane's q
};
static_assert(sizeof(ActivationBlock) == 512);

/// Activations are at most this in magnitude after division by their scale.
inline constexpr float kActivationMax = 127;
/// A lane whose values are all below this counts as zero, so that 1 / scale stays finite.
inline constexpr float kActivationMin = 0x1p-100f;

struct ActivationsAccess {
  static int blocks_in_row(int cols) { return (cols + kBlockValues - 1) / kBlockValues; }
  static size_t padded(int cols) { return static_cast<size_t>((cols + kLanes - 1) / kLanes * kLanes); }

  static ActivationBlock* blocks(Activations& a, int token) {
    return reinterpret_cast<ActivationBlock*>(a.blocks_.data()) +
           static_cast<size_t>(token) * static_cast<size_t>(blocks_in_row(a.cols_));
  }
  static const ActivationBlock* blocks(const Activations& a, int token) {
    return blocks(const_cast<Activations&>(a), token);
  }
  static float* values(Activations& a, int token) {
    return a.values_.data() + static_cast<size_t>(token) * padded(a.cols_);
  }
  static const float* values(const Activations& a, int token) {
    return values(const_cast<Activations&>(a), token);
  }
};

/// Kernels::multiply for quantised weights, with AVX2.
namespace avx2 {
void multiply(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
              float* y, size_t y_stride);
}

/// The tables of the instruction sets that this build has; null where it does not or the processor lacks it.
const Kernels& scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* avx512_dl_kernels();
const Kernels* neon_kernels();

}  // namespace redlite::cpu
