// The mixers' arithmetic in vectors: compiled once for each instruction set (Highway's foreach_target).
#include "cpu/mixer_kernels.h"

#include <cstdint>
#include <string_view>

#include "base/half.h"

// The 128-bit x86 sets are left to the scalar code; scalable vectors cannot be kept in arrays.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mixer_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After it:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace redlite::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE int lanes() {
  return static_cast<int>(hn::Lanes(D()));
}

HWY_INLINE float sum(V v) {
  return hn::GetLane(hn::SumOfLanes(D(), v));
}

HWY_INLINE V sigmoid(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(x))));
}

HWY_INLINE float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
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

/// weights[g][p] = q[g] . k[p] for kHeads heads: each row of K is read once for all of them.
template <int kHeads, typename Row>
void scores(const float* q, int q_stride, const Row* k, int dim, int n, float* weights) {
  const D d;
  for (int p = 0; p < n; ++p) {
    const Row* row = k + static_cast<size_t>(p) * dim;
    V dot[kHeads];
    for (V& x : dot) x = hn::Zero(d);
    int i = 0;
    for (; i + lanes() <= dim; i += lanes()) {
      const V x = load_row(row, i);
      for (int g = 0; g < kHeads; ++g) dot[g] = hn::MulAdd(hn::LoadU(d, q + g * q_stride + i), x, dot[g]);
    }
    for (int g = 0; g < kHeads; ++g) {
      float s = sum(dot[g]);
      for (int j = i; j < dim; ++j) s += q[g * q_stride + j] * load_value(row, j);
      weights[g * kAttendBlock + p] = s;
    }
  }
}

/// o[g] += sum over kRows positions of weights[g][p] * v[p]
template <int kHeads, int kRows, typename Row>
void accumulate(const float* weights, const Row* v, int dim, float* o) {
  const D d;
  int i = 0;
  for (; i + lanes() <= dim; i += lanes()) {
    V rows[kRows];
    for (int p = 0; p < kRows; ++p) rows[p] = load_row(v + static_cast<size_t>(p) * dim, i);
    for (int g = 0; g < kHeads; ++g) {
      V x = hn::LoadU(d, o + g * dim + i);
      for (int p = 0; p < kRows; ++p) x = hn::MulAdd(hn::Set(d, weights[g * kAttendBlock + p]), rows[p], x);
      hn::StoreU(x, d, o + g * dim + i);
    }
  }
  for (; i < dim; ++i) {
    for (int g = 0; g < kHeads; ++g)
      for (int p = 0; p < kRows; ++p)
        o[g * dim + i] += weights[g * kAttendBlock + p] * load_value(v + static_cast<size_t>(p) * dim, i);
  }
}

/// Replaces scores by exp(score - max); returns max and the sum.
void softmax(float* weights, int n, float* max_out, float* sum_out) {
  const D d;
  const float max = *std::max_element(weights, weights + n);
  V total = hn::Zero(d);
  int p = 0;
  for (; p + lanes() <= n; p += lanes()) {
    const V e = hn::Exp(d, hn::Sub(hn::LoadU(d, weights + p), hn::Set(d, max)));
    hn::StoreU(e, d, weights + p);
    total = hn::Add(total, e);
  }
  float rest = 0;
  for (; p < n; ++p) {
    weights[p] = std::exp(weights[p] - max);
    rest += weights[p];
  }
  *max_out = max;
  *sum_out = sum(total) + rest;
}

template <int kHeads, typename Row>
void attend_heads(const AttendBlock& b, const AttendResult& result, int first_head) {
  const int dim = b.head_dim;
  const auto* k = static_cast<const Row*>(b.k);
  const auto* v = static_cast<const Row*>(b.v);
  float* o = result.o + static_cast<size_t>(first_head) * dim;
  HWY_ALIGN float weights[kHeads * kAttendBlock];
  scores<kHeads>(b.q + static_cast<size_t>(first_head) * b.q_stride, b.q_stride, k, dim, b.n, weights);
  for (int g = 0; g < kHeads; ++g)
    softmax(weights + g * kAttendBlock, b.n, result.max + first_head + g, result.sum + first_head + g);
  std::fill(o, o + static_cast<size_t>(kHeads) * dim, 0.0f);
  int p = 0;
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
    const float a = std::exp(total.max[g] - max);
    const float b = std::exp(next.max[g] - max);
    total.max[g] = max;
    total.sum[g] = total.sum[g] * a + next.sum[g] * b;
    float* o = total.o + static_cast<size_t>(g) * head_dim;
    const float* other = next.o + static_cast<size_t>(g) * head_dim;
    int i = 0;
    for (; i + lanes() <= head_dim; i += lanes()) {
      const V scaled = hn::Mul(hn::LoadU(d, o + i), hn::Set(d, a));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, other + i), hn::Set(d, b), scaled), d, o + i);
    }
    for (; i < head_dim; ++i) o[i] = o[i] * a + other[i] * b;
  }
}

void conv_silu(const float* const* inputs, const float* w, int w_stride, int taps, int n, float* y) {
  const D d;
  int c = 0;
  for (; c + lanes() <= n; c += lanes()) {
    V x = hn::Zero(d);
    for (int i = 0; i < taps; ++i)
      x = hn::MulAdd(hn::LoadU(d, inputs[i] + c), hn::LoadU(d, w + static_cast<size_t>(i) * w_stride + c), x);
    hn::StoreU(hn::Mul(x, sigmoid(x)), d, y + c);
  }
  for (; c < n; ++c) {
    float x = 0;
    for (int i = 0; i < taps; ++i) x += inputs[i][c] * w[static_cast<size_t>(i) * w_stride + c];
    y[c] = x * sigmoid(x);
  }
}

HWY_INLINE float sum_of_squares(const float* x, int n) {
  const D d;
  V total = hn::Zero(d);
  int i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const V v = hn::LoadU(d, x + i);
    total = hn::MulAdd(v, v, total);
  }
  float rest = 0;
  for (; i < n; ++i) rest += x[i] * x[i];
  return sum(total) + rest;
}

void l2_normalize(float* x, int n, float eps, float scale) {
  const D d;
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + eps);
  int i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  for (; i < n; ++i) x[i] *= factor;
}

/// Columns [0, kVectors * lanes) of `state`, `v` and `o`; row stride `dim`. A column needs no other one, so a
/// strip goes through both passes while it lies in the first-level cache.
template <int kVectors>
void delta_strip(float* state, const float* q, const float* k, const float* v, float decay, float beta,
                 int dim, float* o) {
  const D d;
  const int width = lanes();
  V predicted[kVectors];
  for (V& x : predicted) x = hn::Zero(d);
  for (int i = 0; i < dim; ++i) {
    const float* row = state + static_cast<size_t>(i) * dim;
    const V ki = hn::Set(d, k[i]);
    for (int c = 0; c < kVectors; ++c)
      predicted[c] = hn::MulAdd(hn::LoadU(d, row + c * width), ki, predicted[c]);
  }
  V delta[kVectors];
  V out[kVectors];
  for (int c = 0; c < kVectors; ++c) {
    const V error = hn::NegMulAdd(predicted[c], hn::Set(d, decay), hn::LoadU(d, v + c * width));
    delta[c] = hn::Mul(error, hn::Set(d, beta));
    out[c] = hn::Zero(d);
  }
  for (int i = 0; i < dim; ++i) {
    float* row = state + static_cast<size_t>(i) * dim;
    const V ki = hn::Set(d, k[i]);
    const V qi = hn::Set(d, q[i]);
    for (int c = 0; c < kVectors; ++c) {
      const V old = hn::Mul(hn::LoadU(d, row + c * width), hn::Set(d, decay));
      const V s = hn::MulAdd(delta[c], ki, old);
      hn::StoreU(s, d, row + c * width);
      out[c] = hn::MulAdd(s, qi, out[c]);
    }
  }
  for (int c = 0; c < kVectors; ++c) hn::StoreU(out[c], d, o + c * width);
}

void delta_step(float* state, const float* q, const float* k, const float* v, float decay, float beta,
                int dim, float* o) {
  const int width = lanes();
  int j = 0;
  for (; j + 4 * width <= dim; j += 4 * width)
    delta_strip<4>(state + j, q, k, v + j, decay, beta, dim, o + j);
  for (; j + width <= dim; j += width) delta_strip<1>(state + j, q, k, v + j, decay, beta, dim, o + j);
  for (; j < dim; ++j) {
    float* column = state + j;
    float predicted = 0;
    for (int i = 0; i < dim; ++i) predicted += column[static_cast<size_t>(i) * dim] * k[i];
    const float delta = (v[j] - predicted * decay) * beta;
    float out = 0;
    for (int i = 0; i < dim; ++i) {
      float& s = column[static_cast<size_t>(i) * dim];
      s = s * decay + k[i] * delta;
      out += s * q[i];
    }
    o[j] = out;
  }
}

void gated_norm(const float* x, const float* weight, const float* gate, float eps, int n, float* y) {
  const D d;
  const float factor = 1 / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  int i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const V g = hn::LoadU(d, gate + i);
    const V normed = hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), hn::LoadU(d, weight + i));
    hn::StoreU(hn::Mul(normed, hn::Mul(g, sigmoid(g))), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * factor * weight[i] * (gate[i] * sigmoid(gate[i]));
}

void gate(const float* x, float scale, const float* gate, int n, float* y) {
  const D d;
  int i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const V scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
    hn::StoreU(hn::Mul(scaled, sigmoid(hn::LoadU(d, gate + i))), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * scale * sigmoid(gate[i]);
}

void add_scaled(const float* x, float scale, int n, float* y) {
  const D d;
  int i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, scale), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] += scale * x[i];
}

}  // namespace

extern const MixerKernels kMixerKernels;
const MixerKernels kMixerKernels = {"vector",   attend,     merge, conv_silu, l2_normalize,
                                    delta_step, gated_norm, gate,  add_scaled};

}  // namespace HWY_NAMESPACE
}  // namespace redlite::cpu
HWY_AFTER_NAMESPACE();

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
