// The kernels in vectors of any length, compiled once for each instruction set (Highway's foreach_target):
// AVX2 with FMA, AVX-512, NEON. Sixteen lanes are one, two or four vectors; each lane's arithmetic is that of
// scalar.cc, so the bits are too.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/layout.h"
#include "cpu/kernels/unpack.h"
#include "quant/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/simd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After it:
#include <hwy/highway.h>

#include "cpu/kernels/exp-inl.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON

// Loops over the registers of a tile must vanish: GCC otherwise keeps the tile in memory.
#undef RL_UNROLL
#if HWY_COMPILER_CLANG
#define RL_UNROLL HWY_PRAGMA(unroll)
#else
#define RL_UNROLL HWY_PRAGMA(GCC unroll 16)
#endif

HWY_BEFORE_NAMESPACE();
namespace redlite::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Access = ActivationsAccess;
using quant::Type;

using D = hn::CappedTag<float, kLanes>;
using DI = hn::Rebind<int32_t, D>;
using VF = hn::Vec<D>;
using VI = hn::Vec<DI>;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectors = kLanes / kWidth;  // of the 16 lanes

struct Lanes {
  VF v[kVectors];
};

HWY_INLINE Lanes zero_lanes() {
  Lanes out;
  for (VF& v : out.v) v = hn::Zero(D());
  return out;
}

HWY_INLINE float fold(const Lanes& lanes) {
  alignas(64) float sums[kLanes];
  for (int k = 0; k < kVectors; ++k) hn::Store(lanes.v[k], D(), sums + k * kWidth);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// ---- products with F32, F16 and BF16 weights ----

template <Type kType>
HWY_INLINE VF load_floats(const std::byte* row, int i) {
  if constexpr (kType == Type::F32) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(row) + i);
  } else if constexpr (kType == Type::F16) {
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(D(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(row) + i));
  } else {
    const hn::Rebind<uint16_t, D> half;
    const hn::Rebind<uint32_t, D> full;
    const auto bits = hn::PromoteTo(full, hn::LoadU(half, reinterpret_cast<const uint16_t*>(row) + i));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
}

template <Type kType>
constexpr size_t kFloatBytes = kType == Type::F32 ? 4 : 2;

/// kRows x kTokens dot products; n values, x[t * x_stride].
template <Type kType, int kRows, int kTokens>
HWY_INLINE void dot_tile(const std::byte* w, size_t row_bytes, const float* x, size_t x_stride, int n,
                         float* y, size_t y_stride) {
  Lanes sums[kRows][kTokens];
  RL_UNROLL
  for (auto& row : sums) {
    RL_UNROLL
    for (Lanes& sum : row) sum = zero_lanes();
  }
  const int whole = n / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes) {
    RL_UNROLL
    for (int k = 0; k < kVectors; ++k) {
      VF values[kTokens];
      RL_UNROLL
      for (int t = 0; t < kTokens; ++t)
        values[t] = hn::LoadU(D(), x + static_cast<size_t>(t) * x_stride + i + k * kWidth);
      RL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::byte* const row = w + static_cast<size_t>(r) * row_bytes;
        if constexpr (kTokens == 1 && kRows > 1 && kType != Type::F32)
          __builtin_prefetch(row + kRows * row_bytes +
                             static_cast<size_t>(i + k * kWidth) * kFloatBytes<kType>);
        const VF weights = load_floats<kType>(row, i + k * kWidth);
        RL_UNROLL
        for (int t = 0; t < kTokens; ++t) sums[r][t].v[k] = hn::MulAdd(values[t], weights, sums[r][t].v[k]);
      }
    }
  }
  if (whole < n) {  // the last values fill the lanes from 0
    const size_t rest = static_cast<size_t>(n - whole);
    RL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      std::byte weights[kLanes * 4] = {};
      std::memcpy(weights,
                  w + static_cast<size_t>(r) * row_bytes + static_cast<size_t>(whole) * kFloatBytes<kType>,
                  rest * kFloatBytes<kType>);
      RL_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        float values[kLanes] = {};
        std::memcpy(values, x + static_cast<size_t>(t) * x_stride + whole, rest * sizeof(float));
        RL_UNROLL
        for (int k = 0; k < kVectors; ++k) {
          sums[r][t].v[k] = hn::MulAdd(hn::LoadU(D(), values + k * kWidth),
                                       load_floats<kType>(weights, k * kWidth), sums[r][t].v[k]);
        }
      }
    }
  }
  RL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    RL_UNROLL
    for (int t = 0; t < kTokens; ++t)
      y[static_cast<size_t>(t) * y_stride + static_cast<size_t>(r)] = fold(sums[r][t]);
  }
}

/// Rows [first, last) times n_tokens tokens, in tiles that fit the registers; a panel of rows stays in the
/// second-level cache while the tokens pass by.
template <Type kType>
void multiply_floats(const std::byte* w, size_t row_bytes, int first, int last, const float* x,
                     size_t x_stride, int n_tokens, int n, float* y, size_t y_stride) {
  constexpr int kTokens = kWidth >= 16 ? 4 : 2;
  constexpr int kRows = kWidth >= 16 ? 4 : 2;
  constexpr int kPanelRows = 16;
  for (int panel = first; panel < last; panel += kPanelRows) {
    const int end = std::min(panel + kPanelRows, last);
    int t = 0;
    for (; t + kTokens <= n_tokens; t += kTokens) {
      const float* from = x + static_cast<size_t>(t) * x_stride;
      float* to = y + static_cast<size_t>(t) * y_stride;
      int r = panel;
      for (; r + kRows <= end; r += kRows) {
        dot_tile<kType, kRows, kTokens>(w + static_cast<size_t>(r) * row_bytes, row_bytes, from, x_stride, n,
                                        to + r, y_stride);
      }
      for (; r < end; ++r) {
        dot_tile<kType, 1, kTokens>(w + static_cast<size_t>(r) * row_bytes, row_bytes, from, x_stride, n,
                                    to + r, y_stride);
      }
    }
    for (; t < n_tokens; ++t) {
      const float* from = x + static_cast<size_t>(t) * x_stride;
      float* to = y + static_cast<size_t>(t) * y_stride;
      int r = panel;
      for (; r + 4 <= end; r += 4) {
        dot_tile<kType, 4, 1>(w + static_cast<size_t>(r) * row_bytes, row_bytes, from, x_stride, n, to + r,
                              y_stride);
      }
      for (; r < end; ++r) {
        dot_tile<kType, 1, 1>(w + static_cast<size_t>(r) * row_bytes, row_bytes, from, x_stride, n, to + r,
                              y_stride);
      }
    }
  }
}

void router(const model::Matrix& w, int first, int last, const float* x, size_t x_stride, int n_tokens,
            float* logits, size_t logits_stride) {
  const auto with_rows = [&](auto multiply) {
    multiply(w.data, w.row_bytes(), first, last, x, x_stride, n_tokens, w.cols, logits, logits_stride);
  };
  switch (w.type) {
    case Type::F32:
      return with_rows(multiply_floats<Type::F32>);
    case Type::F16:
      return with_rows(multiply_floats<Type::F16>);
    case Type::BF16:
      return with_rows(multiply_floats<Type::BF16>);
    default:
      break;
  }
  thread_local std::vector<float> row;
  row.resize(static_cast<size_t>(w.cols));
  for (int r = first; r < last; ++r) {
    quant::decode(w.type, w.row(r), row.data(), row.size());
    multiply_floats<Type::F32>(reinterpret_cast<const std::byte*>(row.data()), 0, 0, 1, x, x_stride, n_tokens,
                               w.cols, logits + r, logits_stride);
  }
}

#if HWY_TARGET == HWY_NEON

// ---- products with quantised weights: blocks unpacked by the plain code, multiplied in vectors ----

using DB = hn::Repartition<int8_t, D>;
using VB = hn::Vec<DB>;

/// sum + the products of four neighbouring bytes, |b| <= 127
HWY_INLINE VI add_dot4(VI sum, VB a, VB b) {
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a.raw), vget_low_s8(b.raw)));
  const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(a.raw), vget_high_s8(b.raw)));
  return hn::Add(sum, VI{vpaddq_s32(low, high)});
}

template <bool kMins>
HWY_INLINE void add_block(const WeightBlock& w, const ActivationBlock& x, Lanes& sums) {
  for (int k = 0; k < kVectors; ++k) {
    const int lane = k * kWidth;
    VI dot = hn::Zero(DI());
    for (int j = 0; j < 4; ++j)
      dot = add_dot4(dot, hn::Load(DB(), w.q[j][lane]), hn::Load(DB(), x.q[j][lane]));
    const VF scaled = hn::Mul(hn::ConvertTo(D(), dot), hn::Load(D(), x.scale + lane));
    sums.v[k] = hn::MulAdd(scaled, hn::Load(D(), w.scale + lane), sums.v[k]);
    if constexpr (kMins) {
      sums.v[k] = hn::NegMulAdd(hn::Load(D(), w.min + lane), hn::Load(D(), x.scaled_sum + lane), sums.v[k]);
    }
  }
}

template <typename Block>
void multiply_blocks(const model::Matrix& w, int first, int last, const Activations& x, int t_first,
                     int t_last, float* y, size_t y_stride) {
  const int n_blocks = Access::blocks_in_row(w.cols);
  thread_local AlignedBuffer<WeightBlock> row;
  if (row.size() < static_cast<size_t>(n_blocks))
    row = AlignedBuffer<WeightBlock>(static_cast<size_t>(n_blocks));
  for (int r = first; r < last; ++r) {
    const std::byte* src = w.row(r);
    for (int b = 0; b < n_blocks; ++b, src += kBlockValues / Block::kValues * sizeof(Block)) {
      unpack_weights<Block>(src, w.cols - kBlockValues * b, row[static_cast<size_t>(b)]);
    }
    for (int t = t_first; t < t_last; ++t) {
      const ActivationBlock* blocks = Access::blocks(x, t);
      Lanes sums = zero_lanes();
      for (int b = 0; b < n_blocks; ++b) {
        add_block<quant::has_min(Block::kType)>(row[static_cast<size_t>(b)], blocks[b], sums);
      }
      y[static_cast<size_t>(t - t_first) * y_stride + static_cast<size_t>(r)] = fold(sums);
    }
  }
}

#endif

void multiply(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
              float* y, size_t y_stride) {
  if (first >= last || t_first >= t_last) return;
  if (quant::is_float(w.type)) {
    return router(w, first, last, Access::values(x, t_first), Access::padded(x.cols()), t_last - t_first, y,
                  y_stride);
  }
#if HWY_TARGET == HWY_NEON
  quant::with_block(w.type, [&]<typename Block>() {
    multiply_blocks<Block>(w, first, last, x, t_first, t_last, y, y_stride);
  });
#else
  avx2::multiply(w, first, last, x, t_first, t_last, y, y_stride);
#endif
}

// ---- activations ----

/// Nearest integers, ties to even.
HWY_INLINE VI round_to_int(VF x) {
  const VF round = hn::Set(D(), ExpConstants::kRound);
  return hn::Sub(hn::BitCast(DI(), hn::Add(x, round)), hn::BitCast(DI(), round));
}

void quantize_block(const float* x, ActivationBlock& out) {
  alignas(64) float largest[kLanes], inverse[kLanes], sums[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    VF m = hn::Zero(D());
    for (int k = 0; k < kVectors; ++k) m = hn::Max(m, hn::Abs(hn::LoadU(D(), x + 16 * lane + k * kWidth)));
    largest[lane] = hn::GetLane(hn::MaxOfLanes(D(), m));
  }
  for (int k = 0; k < kVectors; ++k) {
    const int lane = k * kWidth;
    const VF m = hn::Load(D(), largest + lane);
    const VF limit = hn::Set(D(), kActivationMax);
    const auto zero = hn::Lt(m, hn::Set(D(), kActivationMin));
    hn::Store(hn::IfThenZeroElse(zero, hn::Div(m, limit)), D(), out.scale + lane);
    hn::Store(hn::IfThenZeroElse(zero, hn::Div(limit, m)), D(), inverse + lane);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const VF factor = hn::Set(D(), inverse[lane]);
    const hn::Rebind<int8_t, D> bytes;
    alignas(16) int8_t q[16];
    VI total = hn::Zero(DI());
    for (int k = 0; k < kVectors; ++k) {
      const VI v = round_to_int(hn::Mul(hn::LoadU(D(), x + 16 * lane + k * kWidth), factor));
      total = hn::Add(total, v);
      hn::StoreU(hn::DemoteTo(bytes, v), bytes, q + k * kWidth);
    }
    for (int j = 0; j < 4; ++j) std::memcpy(out.q[j][lane], q + 4 * j, 4);
    const int32_t sum = hn::GetLane(hn::SumOfLanes(DI(), total));
    // Unsigned: values that are not finite give sums of any size, and may wrap.
    out.offset_64[lane] = static_cast<int32_t>(uint32_t{0} - 64 * static_cast<uint32_t>(sum));
    out.offset_72[lane] = static_cast<int32_t>(uint32_t{0} - 72 * static_cast<uint32_t>(sum));
    sums[lane] = static_cast<float>(sum);
  }
  for (int k = 0; k < kVectors; ++k) {
    const int lane = k * kWidth;
    hn::Store(hn::Mul(hn::Load(D(), out.scale + lane), hn::Load(D(), sums + lane)), D(),
              out.scaled_sum + lane);
  }
}

void quantize(const float* x, size_t stride, int first, int last, Activations& out) {
  const int cols = out.cols();
  for (int row = first; row < last; ++row) {
    const float* from = x + static_cast<size_t>(row) * stride;
    float* values = Access::values(out, row);
    std::fill(std::copy_n(from, cols, values), values + Access::padded(cols), 0.0f);
    ActivationBlock* blocks = Access::blocks(out, row);
    int at = 0;
    for (; at + kBlockValues <= cols; at += kBlockValues)
      quantize_block(from + at, blocks[at / kBlockValues]);
    if (at < cols) {
      alignas(64) float padded[kBlockValues] = {};
      std::copy_n(from + at, cols - at, padded);
      quantize_block(padded, blocks[at / kBlockValues]);
    }
  }
}

// ---- element by element ----

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  float squares;
  dot_tile<Type::F32, 1, 1>(reinterpret_cast<const std::byte*>(x), 0, x, 0, n, &squares, 0);
  const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const VF scaled = hn::Mul(hn::LoadU(D(), x + i), hn::Set(D(), scale));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(D(), weight + i)), D(), y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

HWY_INLINE VF silu_times(VF gate, VF up) {
  const VF divisor = hn::Add(hn::Set(D(), 1.0f), exp(D(), hn::Neg(gate)));
  return hn::Mul(hn::Div(gate, divisor), up);
}

void silu_multiply(const float* gate, const float* up, int n, float* y) {
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    hn::StoreU(silu_times(hn::LoadU(D(), gate + i), hn::LoadU(D(), up + i)), D(), y + i);
  }
  if (i < n) {
    float g[kWidth] = {}, u[kWidth] = {};
    std::copy_n(gate + i, n - i, g);
    std::copy_n(up + i, n - i, u);
    hn::StoreU(silu_times(hn::LoadU(D(), g), hn::LoadU(D(), u)), D(), g);
    std::copy_n(g, n - i, y + i);
  }
}

}  // namespace

constexpr Kernels kKernels = {HWY_TARGET == HWY_AVX2 ? "avx2" : (HWY_TARGET == HWY_AVX3 ? "avx512" : "neon"),
                              quantize,
                              multiply,
                              router,
                              rms_norm,
                              silu_multiply};

const Kernels* kernels() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace redlite::cpu
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE

#include <hwy/targets.h>

namespace redlite::cpu {
namespace {

[[maybe_unused]] bool supported(int64_t target) {
  static const int64_t targets = hwy::SupportedTargets();  // asking takes microseconds
  return (targets & target) != 0;
}

}  // namespace

const Kernels* avx2_kernels() {
#if HWY_TARGETS & HWY_AVX2
  if (supported(HWY_AVX2)) return N_AVX2::kernels();
#endif
  return nullptr;
}

const Kernels* avx512_kernels() {
#if HWY_TARGETS & HWY_AVX3
  if (supported(HWY_AVX3)) return N_AVX3::kernels();
#endif
  return nullptr;
}

const Kernels* neon_kernels() {
#if HWY_TARGETS & HWY_NEON
  if (supported(HWY_NEON)) return N_NEON::kernels();
#endif
  return nullptr;
}

}  // namespace redlite::cpu

#endif  // HWY_ONCE
