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

/// Keys and values are streamed once a token, and the processor's own prefetch stops at every page: rows are
/// asked for so many before they are used, for the second-level cache and for the first.
constexpr int kRowsFar = 64, kRowsNear = 8;
/// Rows of V that stay in the first-level cache while columns of theirs are added up.
constexpr int kRowsTogether = 32;
HWY_INLINE void prefetch_far(const void* line) {
  __builtin_prefetch(line, 0, 2);
}
HWY_INLINE void prefetch_near(const void* line) {
  __builtin_prefetch(line, 0, 3);
}
/// Whether row[i] begins a cache line, if the row does.
template <typename Row>
HWY_INLINE bool begins_line(int i) {
  return i * static_cast<int>(sizeof(Row)) % 64 == 0;
}

/// Sums that are added to at once, each in a vector: as many as registers suffice for.
constexpr int kSums = kWidth == 8 ? 8 : 16;

/// fold() of sixteen sums: the one of sums[.][i] becomes lane i. Vectors are folded two by two, so that all
/// lanes stay in use.
HWY_INLINE Lanes fold_sixteen(V (&sums)[kVectors][kLanes]) {
  const D d;
  const hn::Repartition<double, D> pairs;
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j)
      for (int i = 0; i < kLanes; ++i) sums[j][i] = hn::Add(sums[j][i], sums[j + half][i]);
  Lanes out;
  for (int j = 0; j < kVectors; ++j) {
    V* x = sums[0] + j * kWidth;
    if constexpr (kWidth == 16) {  // halves of x[i] and of x[i + 8]
      for (int i = 0; i < 8; ++i)
        x[i] = hn::Add(hn::ConcatLowerLower(d, x[i + 8], x[i]), hn::ConcatUpperUpper(d, x[i + 8], x[i]));
    }
    if constexpr (kWidth >= 8) {  // blocks of four lanes, even ones of x[i], odd ones of x[i + 4]
      for (int i = 0; i < 4; ++i) {
        x[i] = hn::Add(hn::OddEvenBlocks(x[i + 4], x[i]),
                       hn::SwapAdjacentBlocks(hn::OddEvenBlocks(x[i], x[i + 4])));
      }
    }
    for (int i = 0; i < 4; i += 2)
      x[i] = hn::Add(hn::InterleaveLower(d, x[i], x[i + 1]), hn::InterleaveUpper(d, x[i], x[i + 1]));
    const auto first = hn::BitCast(pairs, x[0]);
    const auto second = hn::BitCast(pairs, x[2]);
    out.v[j] = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, first, second)),
                       hn::BitCast(d, hn::InterleaveUpper(pairs, first, second)));
  }
  return out;
}

/// sums[p * kHeads + g] += q[g] . k[p] for a vector of columns from `at` on, behind which rows end.
template <int kHeads, typename Row>
HWY_NOINLINE void add_ends(const float* q, int q_stride, const Row* const* k, int at, int dim, V* sums) {
  const D d;
  const int n = std::min(dim - at, kWidth);
  if (n <= 0) return;
  const auto used = hn::FirstN(d, static_cast<size_t>(n));
  for (int s = 0; s < kSums; ++s) {
    HWY_ALIGN float x[kWidth] = {}, y[kWidth] = {};
    for (int l = 0; l < n; ++l) x[l] = load_value(k[s / kHeads], at + l);
    std::copy_n(q + s % kHeads * q_stride, n, y);
    sums[s] = hn::IfThenElse(used, hn::MulAdd(hn::Load(d, y), hn::Load(d, x), sums[s]), sums[s]);
  }
}

/// Scores of kHeads heads at 16 / kHeads positions, [position][head]. A value of K is converted once for all
/// heads. `far` and `near` are rows to be asked for.
template <int kHeads, typename Row>
HWY_INLINE Lanes scores(const float* q, int q_stride, const Row* const* k, const Row* far, const Row* near,
                        int dim) {
  const D d;
  constexpr int kRows = kSums / kHeads;
  V sums[kVectors][kLanes];
  for (int j = 0; j < kVectors; ++j) {
    for (int first = 0; first < kLanes / kHeads; first += kRows) {
      V part[kSums];
      for (V& x : part) x = hn::Zero(d);
      int i = 0;
      for (; i + kLanes <= dim; i += kLanes) {
        V x[kRows];
        for (int p = 0; p < kRows; ++p) {
          const size_t at = static_cast<size_t>(first + p) * dim + i;
          if (j == 0 && begins_line<Row>(i)) {
            prefetch_far(far + at);
            prefetch_near(near + at);
          }
          x[p] = load_row(k[first + p], i + j * kWidth);
        }
        for (int g = 0; g < kHeads; ++g) {
          V y = hn::LoadU(d, q + g * q_stride + i + j * kWidth);
#if HWY_TARGET == HWY_AVX3
          asm("" : "+v"(y.raw));  // loaded once, not with each use
#endif
          for (int p = 0; p < kRows; ++p) part[p * kHeads + g] = hn::MulAdd(y, x[p], part[p * kHeads + g]);
        }
      }
      if (i < dim) {
        V ends[kSums];
        for (int s = 0; s < kSums; ++s) ends[s] = part[s];
        add_ends<kHeads>(q + i + j * kWidth, q_stride, k + first, i + j * kWidth, dim, ends);
        for (int s = 0; s < kSums; ++s) part[s] = ends[s];
      }
      for (int s = 0; s < kSums; ++s) sums[j][first * kHeads + s] = part[s];
    }
  }
  return fold_sixteen(sums);
}

/// Combines lanes that belong to the same one of kHeads heads, halves first.
template <int kHeads, typename Combine>
HWY_INLINE void fold_to_heads(const Lanes& lanes, Combine combine, float* out) {
  HWY_ALIGN float x[kLanes];
  for (int j = 0; j < kVectors; ++j) hn::Store(lanes.v[j], D(), x + j * kWidth);
  for (int half = kLanes / 2; half >= kHeads; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = combine(x[i], x[i + half]);
  std::copy_n(x, kHeads, out);
}

/// Replaces scores weights[n][kHeads] by exp(score - max); returns max and the sum of each head. Behind them,
/// up to the next multiple of 16 values, stand scores of the last position.
template <int kHeads>
void softmax(float* weights, int n, float* max_out, float* sum_out) {
  const D d;
  const int values = n * kHeads;
  Lanes most;
  for (int j = 0; j < kVectors; ++j) most.v[j] = hn::Load(d, weights + j * kWidth);
  for (int i = kLanes; i < values; i += kLanes)
    for (int j = 0; j < kVectors; ++j) most.v[j] = hn::Max(most.v[j], hn::Load(d, weights + i + j * kWidth));
  fold_to_heads<kHeads>(
      most, [](float a, float b) { return std::max(a, b); }, max_out);

  HWY_ALIGN float max[kLanes];
  for (int i = 0; i < kLanes; ++i) max[i] = max_out[i % kHeads];
  Lanes total[kHeads];  // the 16 sums of a head lie side by side in them
  for (Lanes& x : total) x = zero_lanes();
  for (int first = 0; first < values; first += kLanes * kHeads) {
    for (int m = 0; m < kHeads; ++m) {
      const int i = first + m * kLanes;
      for (int j = 0; j < kVectors; ++j) {
        const int left = values - i - j * kWidth;
        if (left <= 0) break;
        float* at = weights + i + j * kWidth;
        V e = exp(d, hn::Sub(hn::Load(d, at), hn::Load(d, max + j * kWidth)));
        if (left < kWidth) e = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), e);
        hn::Store(e, d, at);
        total[m].v[j] = hn::Add(total[m].v[j], e);
      }
    }
  }
  for (int half = kHeads / 2; half > 0; half /= 2)
    for (int m = 0; m < half; ++m)
      for (int j = 0; j < kVectors; ++j) total[m].v[j] = hn::Add(total[m].v[j], total[m + half].v[j]);
  fold_to_heads<kHeads>(
      total[0], [](float a, float b) { return a + b; }, sum_out);
}

/// o[g] (+)= sum over n positions of weights[p][g] * v[p], for kStrip vectors of columns from i on. Memory is
/// asked for the n rows from `far` on one line after another, whatever the order in which they will be used.
template <int kHeads, int kStrip, typename Row>
HWY_INLINE void accumulate_strip(const float* weights, const Row* v, const Row* far, const Row* near, int n,
                                 int dim, int i, bool add, float* o) {
  const D d;
  const char* line = reinterpret_cast<const char*>(far) + static_cast<size_t>(i) * sizeof(Row) * n;
  V sums[kHeads][kStrip];
  for (int g = 0; g < kHeads; ++g)
    for (int s = 0; s < kStrip; ++s)
      sums[g][s] = add ? hn::LoadU(d, o + g * dim + i + s * kWidth) : hn::Zero(d);
  for (int p = 0; p < n; ++p, v += dim, near += dim, weights += kHeads) {
    V x[kStrip];
    for (int s = 0; s < kStrip; ++s) {
      if (begins_line<Row>(i + s * kWidth)) {
        prefetch_far(line);
        prefetch_near(near + i + s * kWidth);
        line += 64;
      }
      x[s] = load_row(v, i + s * kWidth);
    }
    for (int g = 0; g < kHeads; ++g) {
      const V weight = hn::Set(d, weights[g]);
      for (int s = 0; s < kStrip; ++s) sums[g][s] = hn::MulAdd(weight, x[s], sums[g][s]);
    }
  }
  for (int g = 0; g < kHeads; ++g)
    for (int s = 0; s < kStrip; ++s) hn::StoreU(sums[g][s], d, o + g * dim + i + s * kWidth);
}

/// The same for all columns.
template <int kHeads, typename Row>
void accumulate(const float* weights, const Row* v, const Row* far, const Row* near, int n, int dim, bool add,
                float* o) {
  constexpr int kStrip = std::clamp(kSums / kHeads, 1, 4);
  int i = 0;
  for (; i + kStrip * kWidth <= dim; i += kStrip * kWidth)
    accumulate_strip<kHeads, kStrip>(weights, v, far, near, n, dim, i, add, o);
  for (; i + kWidth <= dim; i += kWidth)
    accumulate_strip<kHeads, 1>(weights, v, far, near, n, dim, i, add, o);
  for (; i < dim; ++i) {
    for (int g = 0; g < kHeads; ++g) {
      float x = add ? o[g * dim + i] : 0;
      for (int p = 0; p < n; ++p)
        x = std::fmaf(weights[p * kHeads + g], load_value(v + static_cast<size_t>(p) * dim, i), x);
      o[g * dim + i] = x;
    }
  }
}

template <int kHeads, typename Row>
void attend_heads(const AttendBlock& b, const AttendResult& result, int first_head) {
  const int n = b.n;
  const auto dim = static_cast<size_t>(b.head_dim);
  const auto* k = static_cast<const Row*>(b.k);
  const auto* v = static_cast<const Row*>(b.v);
  const float* q = b.q + static_cast<size_t>(first_head) * b.q_stride;
  float* o = result.o + static_cast<size_t>(first_head) * dim;
  HWY_ALIGN float weights[kAttendBlock * kHeads];

  constexpr int kRows = kLanes / kHeads;
  for (int p = 0; p < n; p += kRows) {
    const Row* rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = k + std::min(p + r, n - 1) * dim;
    const auto row_after = [&](int next) { return next < n ? k + next * dim : v + (next - n) * dim; };
    const Lanes x =
        scores<kHeads>(q, b.q_stride, rows, row_after(p + kRowsFar), row_after(p + kRowsNear), b.head_dim);
    for (int j = 0; j < kVectors; ++j) hn::Store(x.v[j], D(), weights + p * kHeads + j * kWidth);
  }
  softmax<kHeads>(weights, n, result.max + first_head, result.sum + first_head);
  for (int p = 0; p < n; p += kRowsTogether) {
    // The next block is often the following one.
    const auto row_after = [&](int next) { return next < n ? v + next * dim : k + next * dim; };
    accumulate<kHeads>(weights + p * kHeads, v + p * dim, row_after(p + kRowsFar),
                       row_after(p + kRowsTogether), std::min(kRowsTogether, n - p), b.head_dim, p > 0, o);
  }
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
