// The mixers' arithmetic in plain loops: for processors without a vector unit we know, and the definition of
// what the others compute.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "cpu/kernels/exp.h"
#include "cpu/kernels/layout.h"
#include "cpu/mixer_kernels.h"

namespace redlite::cpu {
namespace {

float sigmoid(float x) {
  return 1 / (1 + exp(-x));
}

float load(const void* rows, bool f16, size_t i) {
  return f16 ? f16_to_f32(static_cast<const uint16_t*>(rows)[i]) : static_cast<const float*>(rows)[i];
}

/// The order of sums along a row.
struct Lanes {
  float v[kLanes] = {};
  void add(size_t i, float a, float b) { v[i % kLanes] = std::fmaf(a, b, v[i % kLanes]); }
  void add(size_t i, float a) { v[i % kLanes] += a; }
  float fold() {
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) v[j] += v[j + half];
    return v[0];
  }
};

float sum_of_squares(const float* x, int n) {
  Lanes lanes;
  for (int i = 0; i < n; ++i) lanes.add(static_cast<size_t>(i), x[i], x[i]);
  return lanes.fold();
}

void attend(const AttendBlock& b, const AttendResult& result) {
  const size_t dim = static_cast<size_t>(b.head_dim), n = static_cast<size_t>(b.n);
  float weights[kAttendBlock] = {};
  for (int g = 0; g < b.group; ++g) {
    const float* q = b.q + static_cast<size_t>(g) * b.q_stride;
    for (size_t p = 0; p < n; ++p) {
      Lanes lanes;
      for (size_t i = 0; i < dim; ++i) lanes.add(i, q[i], load(b.k, b.f16, p * dim + i));
      weights[p] = lanes.fold();
    }
    const float max = *std::max_element(weights, weights + n);
    Lanes sum;
    for (size_t p = 0; p < n; ++p) {
      weights[p] = exp(weights[p] - max);
      sum.add(p, weights[p]);
    }
    float* o = result.o + g * dim;
    std::fill(o, o + dim, 0.0f);
    for (size_t p = 0; p < n; ++p)
      for (size_t i = 0; i < dim; ++i) o[i] = std::fmaf(weights[p], load(b.v, b.f16, p * dim + i), o[i]);
    result.max[g] = max;
    result.sum[g] = sum.fold();
  }
}

void merge(const AttendResult& total, const AttendResult& next, int group, int head_dim) {
  for (int g = 0; g < group; ++g) {
    const float max = std::max(total.max[g], next.max[g]);
    const float a = exp(total.max[g] - max);
    const float b = exp(next.max[g] - max);
    total.max[g] = max;
    total.sum[g] = std::fmaf(next.sum[g], b, total.sum[g] * a);
    float* o = total.o + static_cast<size_t>(g) * head_dim;
    const float* other = next.o + static_cast<size_t>(g) * head_dim;
    for (int i = 0; i < head_dim; ++i) o[i] = std::fmaf(other[i], b, o[i] * a);
  }
}

void conv_silu(const float* const* inputs, const float* w, int w_stride, int taps, int n, float* y) {
  for (int c = 0; c < n; ++c) {
    float sum = 0;
    for (int i = 0; i < taps; ++i)
      sum = std::fmaf(inputs[i][c], w[static_cast<size_t>(i) * w_stride + c], sum);
    y[c] = sum * sigmoid(sum);
  }
}

void l2_normalize(float* x, int n, float eps, float scale) {
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + eps);
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

void delta_rule(float* state, const DeltaTokens& tokens, int dim, const float*) {
  for (int t = 0; t < tokens.n; ++t) {
    const size_t at = static_cast<size_t>(t) * static_cast<size_t>(dim);
    const float *q = tokens.q + at, *k = tokens.k + at;
    for (int j = 0; j < dim; ++j) {
      float* column = state + j;
      float predicted = 0;  // S'k, to be decayed
      for (int i = 0; i < dim; ++i)
        predicted = std::fmaf(column[static_cast<size_t>(i) * dim], k[i], predicted);
      const float delta = std::fmaf(-predicted, tokens.decay[t], tokens.v[at + j]) * tokens.beta[t];
      float sum = 0;
      for (int i = 0; i < dim; ++i) {
        float& s = column[static_cast<size_t>(i) * dim];
        s = std::fmaf(delta, k[i], s * tokens.decay[t]);
        sum = std::fmaf(s, q[i], sum);
      }
      tokens.o[at + j] = sum;
    }
  }
}

void gated_norm(const float* x, const float* weight, const float* gate, float eps, int n, float* y) {
  const float factor = 1 / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i] * (gate[i] * sigmoid(gate[i]));
}

void gate(const float* x, float scale, const float* gate, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = x[i] * scale * sigmoid(gate[i]);
}

void add_scaled(const float* x, float scale, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = std::fmaf(x[i], scale, y[i]);
}

}  // namespace

const MixerKernels kScalarMixerKernels = {"scalar",   attend,     merge, conv_silu, l2_normalize,
                                          delta_rule, gated_norm, gate,  add_scaled};

}  // namespace redlite::cpu
