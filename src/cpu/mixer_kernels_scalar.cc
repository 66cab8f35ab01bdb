// The mixers' arithmetic in plain loops: for processors without a vector unit we know, and to test the
// others.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "cpu/mixer_kernels.h"

namespace redlite::cpu {
namespace {

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

float load(const void* rows, bool f16, size_t i) {
  return f16 ? f16_to_f32(static_cast<const uint16_t*>(rows)[i]) : static_cast<const float*>(rows)[i];
}

float sum_of_squares(const float* x, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

void attend(const AttendBlock& b, const AttendResult& result) {
  const size_t dim = static_cast<size_t>(b.head_dim);
  float weights[kAttendBlock] = {};
  for (int g = 0; g < b.group; ++g) {
    const float* q = b.q + static_cast<size_t>(g) * b.q_stride;
    for (int p = 0; p < b.n; ++p) {
      weights[p] = 0;
      for (size_t i = 0; i < dim; ++i) weights[p] += q[i] * load(b.k, b.f16, p * dim + i);
    }
    const float max = *std::max_element(weights, weights + b.n);
    float* o = result.o + g * dim;
    std::fill(o, o + dim, 0.0f);
    float sum = 0;
    for (int p = 0; p < b.n; ++p) {
      const float weight = std::exp(weights[p] - max);
      sum += weight;
      for (size_t i = 0; i < dim; ++i) o[i] += weight * load(b.v, b.f16, p * dim + i);
    }
    result.max[g] = max;
    result.sum[g] = sum;
  }
}

void merge(const AttendResult& total, const AttendResult& next, int group, int head_dim) {
  for (int g = 0; g < group; ++g) {
    const float max = std::max(total.max[g], next.max[g]);
    const float a = std::exp(total.max[g] - max);
    const float b = std::exp(next.max[g] - max);
    total.max[g] = max;
    total.sum[g] = total.sum[g] * a + next.sum[g] * b;
    float* o = total.o + static_cast<size_t>(g) * head_dim;
    const float* other = next.o + static_cast<size_t>(g) * head_dim;
    for (int i = 0; i < head_dim; ++i) o[i] = o[i] * a + other[i] * b;
  }
}

void conv_silu(const float* const* inputs, const float* w, int w_stride, int taps, int n, float* y) {
  for (int c = 0; c < n; ++c) {
    float sum = 0;
    for (int i = 0; i < taps; ++i) sum += inputs[i][c] * w[static_cast<size_t>(i) * w_stride + c];
    y[c] = sum * sigmoid(sum);
  }
}

void l2_normalize(float* x, int n, float eps, float scale) {
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + eps);
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

void delta_step(float* state, const float* q, const float* k, const float* v, float decay, float beta,
                int dim, float* o) {
  for (int j = 0; j < dim; ++j) {
    float* column = state + j;
    float predicted = 0;  // S'k of the decayed state
    for (int i = 0; i < dim; ++i) predicted += column[static_cast<size_t>(i) * dim] * k[i];
    const float delta = (v[j] - predicted * decay) * beta;
    float sum = 0;
    for (int i = 0; i < dim; ++i) {
      float& s = column[static_cast<size_t>(i) * dim];
      s = s * decay + k[i] * delta;
      sum += s * q[i];
    }
    o[j] = sum;
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
  for (int i = 0; i < n; ++i) y[i] += scale * x[i];
}

}  // namespace

const MixerKernels kScalarMixerKernels = {"scalar",   attend,     merge, conv_silu, l2_normalize,
                                          delta_step, gated_norm, gate,  add_scaled};

}  // namespace redlite::cpu
