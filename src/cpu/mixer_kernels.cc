// The mixers' arithmetic in vectors: compiled once for each instruction set (Highway's foreach_target).
// Sixteen lanes are one, two or four vectors; each lane's arithmetic is that of mixer_kernels_scalar.cc.
#include "cpu/mixer_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "cpu/kernels/layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mixer_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After it:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/kernels/exp-inl.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON

HWY_BEFORE_NAMESPACE();
namespace redlite::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectors = kLanes / kWidth;  // of the 16 lanes

/// Sixteen sums along a row: layout.h defines their order.
struct Lanes {
  V v[kVectors];
};

HWY_INLINE Lanes zero_lanes() {
  Lanes out;
  for (V& v : out.v) v = hn::Zero(D());
  return out;
}

/// lanes[j] += a[j] * b[j] for the n < 16 values at a row's end.
HWY_INLINE void add_tail(Lanes& lanes, const float* a, const float* b, int n) {
  alignas(64) float sums[kLanes];
  for (int k = 0; k < kVectors; ++k) hn::Store(lanes.v[k], D(), sums + k * kWidth);
  for (int j = 0; j < n; ++j) sums[j] = std::fmaf(a[j], b[j], sums[j]);
  for (int k = 0; k < kVectors; ++k) lanes.v[k] = hn::Load(D(), sums + k * kWidth);
}

/// Adds halves until one value is left: j += j + 8, j += j + 4, j += j + 2, j += j + 1.
template <typename Tag>
HWY_INLINE float fold_vector(Tag d, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(Tag()) > 4) {
    const hn::Half<Tag> half;
    return fold_vector(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}
HWY_INLINE float fold(Lanes lanes) {
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lanes.v[k] = hn::Add(lanes.v[k], lanes.v[k + half]);
  return fold_vector(D(), lanes.v[0]);
}

HWY_INLINE V sigmoid(V x) {
  const V one = hn::Set(D(), 1.0f);
  return hn::Div(one, hn::Add(one, exp(D(), hn::Neg(x))));
}
HWY_INLINE float sigmoid(float x) {
  return 1 / (1 + exp(-x));
}

HWY_INLINE V load_row(const float* row, int i) {
  return hn::LoadU(D(), row + i);
}
HWY_INLINE V load_row(const uint16_t* row, int i) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(D(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(row) + i));
}
HWY_INLINE float load_value(const float* row, int i) {
  return row[i];
}
HWY_INLINE float load_value(const uint16_t* row, int i) {
  return f16_to_f32(row[i]);
}

/// Keys and values are streamed once a token, and the processor's own prefetch stops at every page: the line
/// that is needed this many rows later is asked for when row[i] is read.
constexpr int kRowsAhead = 8;
template <typename Row>
HWY_INLINE void prefetch_ahead(const Row* row, int i, int dim) {
  if (i * static_cast<int>(sizeof(Row)) % 64 == 0)
    hwy::Prefetch(row + static_cast<size_t>(kRowsAhead) * dim + i);
}

/// weights[g][p] = q[g] . k[p] for kHeads heads and kRows positions: each row of K is read once for all
/// heads, each q once for all rows.
template <int kHeads, int kRows, typename Row>
HWY_INLINE void scores(const float* q, int q_stride, const Row* k, int dim, float* weights) {
  const D d;
  Lanes dot[kRows][kHeads];
  for (auto& row : dot)
    for (Lanes& x : row) x = zero_lanes();
  int i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    for (int p = 0; p < kRows; ++p) prefetch_ahead(k + static_cast<size_t>(p) * dim, i, dim);
    for (int j = 0; j < kVectors; ++j) {
      const int at = i + j * kWidth;
      V x[kRows];
      for (int p = 0; p < kRows; ++p) x[p] = load_row(k + static_cast<size_t>(p) * dim, at);
      for (int g = 0; g < kHeads; ++g) {
        const V y = hn::LoadU(d, q + g * q_stride + at);
        for (int p = 0; p < kRows; ++p) dot[p][g].v[j] = hn::MulAdd(y, x[p], dot[p][g].v[j]);
      }
    }
  }
  for (int p = 0; p < kRows; ++p) {
    if (i < dim) {
      float rest[kLanes];
      for (int j = i; j < dim; ++j) rest[j - i] = load_value(k + static_cast<size_t>(p) * dim, j);
      for (int g = 0; g < kHeads; ++g) add_tail(dot[p][g], q + g * q_stride + i, rest, dim - i);
    }
    for (int g = 0; g < kHeads; ++g) weights[g * kAttendBlock + p] = fold(dot[p][g]);
  }
}

/// o[g] += sum over kRows positions of weights[g][p] * v[p]
template <int kHeads, int kRows, typename Row>
void accumulate(const float* weights, const Row* v, int dim, float* o) {
  const D d;
  int i = 0;
  for (; i + kWidth <= dim; i += kWidth) {
    V rows[kRows];
    for (int p = 0; p < kRows; ++p) {
      const Row* row = v + static_cast<size_t>(p) * dim;
      prefetch_ahead(row, i, dim);
      rows[p] = load_row(row, i);
    }
    for (int g = 0; g < kHeads; ++g) {
      V x = hn::LoadU(d, o + g * dim + i);
      for (int p = 0; p < kRows; ++p) x = hn::MulAdd(hn::Set(d, weights[g * kAttendBlock + p]), rows[p], x);
      hn::StoreU(x, d, o + g * dim + i);
    }
  }
  for (; i < dim; ++i) {
    for (int g = 0; g < kHeads; ++g) {
      float& x = o[g * dim + i];
      for (int p = 0; p < kRows; ++p)
        x = std::fmaf(weights[g * kAttendBlock + p], load_value(v + static_cast<size_t>(p) * dim, i), x);
    }
  }
}

HWY_INLINE float largest(const float* x, int n) {
  const D d;
  if (n < kWidth) return *std::max_element(x, x + n);
  V most = hn::LoadU(d, x + n - kWidth);
  for (int i = 0; i + kWidth <= n; i += kWidth) most = hn::Max(most, hn::LoadU(d, x + i));
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Replaces scores by exp(score - max); returns max and the sum.
void softmax(float* weights, int n, float* max_out, float* sum_out) {
  const D d;
  const float max = largest(weights, n);
  Lanes total = zero_lanes();
  int p = 0;
  for (; p + kLanes <= n; p += kLanes) {
    for (int j = 0; j < kVectors; ++j) {
      float* at = weights + p + j * kWidth;
      const V e = exp(d, hn::Sub(hn::LoadU(d, at), hn::Set(d, max)));
      hn::StoreU(e, d, at);
      total.v[j] = hn::Add(total.v[j], e);
    }
  }
  const float ones[kLanes] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int i = p; i < n; ++i) weights[i] = exp(weights[i] - max);
  add_tail(total, weights + p, ones, n - p);
  *max_out = max;
  *sum_out = fold(total);
}

template <int kHeads, typename Row>
void attend_heads(const AttendBlock& b, const AttendResult& result, int first_head) {
  const int dim = b.head_dim;
  const auto* k = static_cast<const Row*>(b.k);
  const auto* v = static_cast<const Row*>(b.v);
  float* o = result.o + static_cast<size_t>(first_head) * dim;
  HWY_ALIGN float weights[kHeads * kAttendBlock];
  const float* q = b.q + static_cast<size_t>(first_head) * b.q_stride;
  constexpr int kRows = kVectors == 1 ? 2 : 1;  // as registers suffice
  int p = 0;
  for (; p + kRows <= b.n; p += kRows)
    scores<kHeads, kRows>(q, b.q_stride, k + static_cast<size_t>(p) * dim, dim, weights + p);
  for (; p < b.n; ++p) scores<kHeads, 1>(q, b.q_stride, k + static_cast<size_t>(p) * dim, dim, weights + p);
  for (int g = 0; g < kHeads; ++g)
    softmax(weights + g * kAttendBlock, b.n, result.max + first_head + g, result.sum + first_head + g);
  std::fill(o, o + static_cast<size_t>(kHeads) * dim, 0.0f);
  p = 0;
  for (; p + 8 <= b.n; p += 8) accumulate<kHeads, 8>(weights + p, v + static_cast<size_t>(p) * dim, dim, o);
  for (; p < b.n; ++p) accumulate<kHeads, 1>(weights + p, v + static_cast<size_t>(p) * dim, dim, o);
}

template <typename Row>
void attend_rows(const AttendBlock& b, const AttendResult& result) {
  int g = 0;
  for (; g + 8 <= b.group; g += 8) attend_heads<8, Row>(b, result, g);
  for (; g + 4 <= b.group; g += 4) attend_heads<4, Row>(b, result, g);
  for (; g + 2 <= b.group; g += 2) attend_heads<2, Row>(b, result, g);
  for (; g < b.group; ++g) attend_heads<1, Row>(b, result, g);
}

void attend(const AttendBlock& b, const AttendResult& result) {
  if (b.f16)
    attend_rows<uint16_t>(b, result);
  else
    attend_rows<float>(b, result);
}

void merge(const AttendResult& total, const AttendResult& next, int group, int head_dim) {
  const D d;
  for (int g = 0; g < group; ++g) {
    const float max = std::max(total.max[g], next.max[g]);
    const float a = exp(total.max[g] - max);
    const float b = exp(next.max[g] - max);
    total.max[g] = max;
    total.sum[g] = std::fmaf(next.sum[g], b, total.sum[g] * a);
    float* o = total.o + static_cast<size_t>(g) * head_dim;
    const float* other = next.o + static_cast<size_t>(g) * head_dim;
    int i = 0;
    for (; i + kWidth <= head_dim; i += kWidth) {
      const V scaled = hn::Mul(hn::LoadU(d, o + i), hn::Set(d, a));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, other + i), hn::Set(d, b), scaled), d, o + i);
    }
    for (; i < head_dim; ++i) o[i] = std::fmaf(other[i], b, o[i] * a);
  }
}

void conv_silu(const float* const* inputs, const float* w, int w_stride, int taps, int n, float* y) {
  const D d;
  int c = 0;
  for (; c + kWidth <= n; c += kWidth) {
    V x = hn::Zero(d);
    for (int i = 0; i < taps; ++i)
      x = hn::MulAdd(hn::LoadU(d, inputs[i] + c), hn::LoadU(d, w + static_cast<size_t>(i) * w_stride + c), x);
    hn::StoreU(hn::Mul(x, sigmoid(x)), d, y + c);
  }
  for (; c < n; ++c) {
    float x = 0;
    for (int i = 0; i < taps; ++i) x = std::fmaf(inputs[i][c], w[static_cast<size_t>(i) * w_stride + c], x);
    y[c] = x * sigmoid(x);
  }
}

HWY_INLINE float sum_of_squares(const float* x, int n) {
  const D d;
  Lanes total = zero_lanes();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kVectors; ++j) {
      const V v = hn::LoadU(d, x + i + j * kWidth);
      total.v[j] = hn::MulAdd(v, v, total.v[j]);
    }
  }
  if (i < n) add_tail(total, x + i, x + i, n - i);
  return fold(total);
}

void l2_normalize(float* x, int n, float eps, float scale) {
  const D d;
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + eps);
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  for (; i < n; ++i) x[i] *= factor;
}

/// Tokens of the delta rule for kStrip vectors of columns from `column` on. A column needs no other one. The
/// rows are read once a token: while they are updated for one token, the next one's prediction is summed up.
template <int kStrip>
void delta_strip(float* state, const DeltaTokens& tokens, int dim, int column, const float* next) {
  const D d;
  const size_t stride = static_cast<size_t>(dim);
  V predicted[kStrip];  // S'k, to be decayed
  for (V& x : predicted) x = hn::Zero(d);
  for (int i = 0; i < dim; ++i) {
    const float* row = state + stride * i + column;
    const V ki = hn::Set(d, tokens.k[i]);
    for (int c = 0; c < kStrip; ++c)
      predicted[c] = hn::MulAdd(hn::LoadU(d, row + c * kWidth), ki, predicted[c]);
  }
  for (int t = 0; t < tokens.n; ++t) {
    const float *q = tokens.q + stride * t, *k = tokens.k + stride * t;
    const V decay = hn::Set(d, tokens.decay[t]);
    V delta[kStrip], out[kStrip];
    for (int c = 0; c < kStrip; ++c) {
      const V v = hn::LoadU(d, tokens.v + stride * t + column + c * kWidth);
      delta[c] = hn::Mul(hn::NegMulAdd(predicted[c], decay, v), hn::Set(d, tokens.beta[t]));
      out[c] = predicted[c] = hn::Zero(d);
    }
    const auto update = [&](int i, int c) HWY_ATTR {
      float* at = state + stride * i + column + c * kWidth;
      const V s = hn::MulAdd(delta[c], hn::Set(d, k[i]), hn::Mul(hn::LoadU(d, at), decay));
      hn::StoreU(s, d, at);
      out[c] = hn::MulAdd(s, hn::Set(d, q[i]), out[c]);
      return s;
    };
    if (t + 1 < tokens.n) {
      for (int i = 0; i < dim; ++i) {
        const V next_k = hn::Set(d, k[stride + i]);
        for (int c = 0; c < kStrip; ++c) predicted[c] = hn::MulAdd(update(i, c), next_k, predicted[c]);
      }
    } else {
      for (int i = 0; i < dim; ++i) {
        for (int c = 0; c < kStrip; ++c) update(i, c);
        if (next == nullptr) continue;
        for (int c = 0; c < kStrip * kWidth; c += 16) hwy::Prefetch(next + stride * i + column + c);
      }
    }
    for (int c = 0; c < kStrip; ++c) hn::StoreU(out[c], d, tokens.o + stride * t + column + c * kWidth);
  }
}

void delta_rule(float* state, const DeltaTokens& tokens, int dim, const float* next) {
  // One token streams whole rows from memory as far as registers suffice; several go through a strip while it
  // lies in the first-level cache.
  constexpr int kWide = HWY_TARGET == HWY_AVX2 ? 4 : 8;
  int j = 0;
  if (tokens.n == 1) {
    for (; j + kWide * kWidth <= dim; j += kWide * kWidth) delta_strip<kWide>(state, tokens, dim, j, next);
  }
  for (; j + 4 * kWidth <= dim; j += 4 * kWidth) delta_strip<4>(state, tokens, dim, j, next);
  for (; j + kWidth <= dim; j += kWidth) delta_strip<1>(state, tokens, dim, j, next);
  for (; j < dim; ++j) {
    for (int t = 0; t < tokens.n; ++t) {
      const size_t at = static_cast<size_t>(t) * static_cast<size_t>(dim);
      const float *q = tokens.q + at, *k = tokens.k + at;
      float* column = state + j;
      float predicted = 0;
      for (int i = 0; i < dim; ++i)
        predicted = std::fmaf(column[static_cast<size_t>(i) * dim], k[i], predicted);
      const float delta = std::fmaf(-predicted, tokens.decay[t], tokens.v[at + j]) * tokens.beta[t];
      float out = 0;
      for (int i = 0; i < dim; ++i) {
        float& s = column[static_cast<size_t>(i) * dim];
        s = std::fmaf(delta, k[i], s * tokens.decay[t]);
        out = std::fmaf(s, q[i], out);
      }
      tokens.o[at + j] = out;
    }
  }
}

void gated_norm(const float* x, const float* weight, const float* gate, float eps, int n, float* y) {
  const D d;
  const float factor = 1 / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const V g = hn::LoadU(d, gate + i);
    const V normed = hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), hn::LoadU(d, weight + i));
    hn::StoreU(hn::Mul(normed, hn::Mul(g, sigmoid(g))), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * factor * weight[i] * (gate[i] * sigmoid(gate[i]));
}

void gate(const float* x, float scale, const float* gate, int n, float* y) {
  const D d;
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const V scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
    hn::StoreU(hn::Mul(scaled, sigmoid(hn::LoadU(d, gate + i))), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * scale * sigmoid(gate[i]);
}

void add_scaled(const float* x, float scale, int n, float* y) {
  const D d;
  int i = 0;
  for (; i + kWidth <= n; i += kWidth)
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, scale), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] = std::fmaf(x[i], scale, y[i]);
}

}  // namespace

extern const MixerKernels kMixerKernels;
const MixerKernels kMixerKernels = {
    HWY_TARGET == HWY_AVX2 ? "avx2" : (HWY_TARGET == HWY_AVX3 ? "avx512" : "neon"),
    attend,
    merge,
    conv_silu,
    l2_normalize,
    delta_rule,
    gated_norm,
    gate,
    add_scaled};

}  // namespace HWY_NAMESPACE
}  // namespace redlite::cpu
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#if HWY_ONCE
namespace redlite::cpu {

const MixerKernels* find_mixer_kernels(std::string_view name) {
  const int64_t supported = hwy::SupportedTargets();
  if (name == "scalar") return &kScalarMixerKernels;
#if HWY_TARGETS & HWY_AVX2
  if (name == "avx2" && (supported & HWY_AVX2) != 0) return &N_AVX2::kMixerKernels;
#endif
#if HWY_TARGETS & HWY_AVX3
  if (name.starts_with("avx512") && (supported & HWY_AVX3) != 0) return &N_AVX3::kMixerKernels;
#endif
#if HWY_TARGETS & HWY_NEON
  if (name.starts_with("neon") && (supported & HWY_NEON) != 0) return &N_NEON::kMixerKernels;
#endif
  return nullptr;
}

}  // namespace redlite::cpu
#endif  // HWY_ONCE
