#include "reference/math.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace redlite::reference {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double silu(double x) {
  return x * sigmoid(x);
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

Vec rms_norm(std::span<const double> x, std::span<const float> weight, double eps) {
  RL_CHECK(x.size() == weight.size(), "{} values, {} weights", x.size(), weight.size());
  const double scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + eps);
  Vec y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void l2_normalize(std::span<double> x, double eps) {
  const double scale = 1 / std::sqrt(dot(x, x) + eps);
  for (double& v : x) v *= scale;
}

void softmax(std::span<double> x) {
  const double largest = *std::ranges::max_element(x);
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
}

double dot(std::span<const double> a, std::span<const double> b) {
  RL_CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void rope(std::span<double> head, int rope_dims, double base, int position) {
  const size_t half = static_cast<size_t>(rope_dims) / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(base, -2.0 * static_cast<double>(i) / rope_dims);
    const double c = std::cos(angle), s = std::sin(angle);
    const double a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = a * s + b * c;
  }
}

Vec delta_step(std::span<double> state, std::span<const double> q, std::span<const double> k,
               std::span<const double> v, double decay, double beta) {
  const size_t d_k = k.size(), d_v = v.size();
  RL_CHECK(state.size() == d_k * d_v && q.size() == d_k, "state {}, q {}, k {}, v {}", state.size(), q.size(),
           d_k, d_v);
  for (double& s : state) s *= decay;
  Vec delta(v.begin(), v.end());
  for (size_t i = 0; i < d_k; ++i)
    for (size_t j = 0; j < d_v; ++j) delta[j] -= state[i * d_v + j] * k[i];
  for (double& d : delta) d *= beta;
  Vec answer(d_v, 0.0);
  for (size_t i = 0; i < d_k; ++i)
    for (size_t j = 0; j < d_v; ++j) {
      state[i * d_v + j] += k[i] * delta[j];
      answer[j] += state[i * d_v + j] * q[i];
    }
  return answer;
}

}  // namespace redlite::reference
