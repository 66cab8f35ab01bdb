// Gated DeltaNet of one layer: project, convolve, update the recurrent state, norm, project back.
#include <algorithm>
#include <cmath>

#include "cpu/runner_impl.h"

namespace redlite::cpu {
namespace {

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

}  // namespace

void CpuRunner::Impl::delta_net(int layer, int n) {
  const model::DeltaNetWeights& w = weights.layers[layer].delta;
  const model::Config& c = config;
  const DeltaOffsets& at = delta_offsets[layer];
  const size_t width = scratch.proj_width;

  // proj[n][conv_dim + value_dim + 2 * n_v_heads]; DeltaOffsets says what lies where
  products.clear();
  float* out = scratch.proj;
  for (const model::Matrix* m : {&w.qkvz, &w.qkv, &w.z, &w.ba, &w.beta, &w.alpha}) {
    if (!*m) continue;
    products.push_back({*m, &scratch.embd_rows, 0, n, out, width});
    out += m->rows;
  }
  multiply(products);

  // core[n][n_v_heads][state_dim]; a K head and its V heads go through all tokens in one thread
  pool.run(c.n_k_heads, 1, [&](int first, int last, int thread) {
    for (int head = first; head < last; ++head) {
      delta_head(index_in_kind[layer], head, n, w, at, conv[layer].data(),
                 scratch.thread + static_cast<size_t>(thread) * scratch.thread_width);
    }
  });

  scratch.core_rows.resize(n, c.value_dim());
  for_tokens(n,
             [&](int t) { kernels.quantize(scratch.core, scratch.core_width, t, t + 1, scratch.core_rows); });
  // y[n][n_embd]
  products.assign({{w.output, &scratch.core_rows, 0, n, scratch.y, static_cast<size_t>(c.n_embd)}});
  multiply(products);
}

void CpuRunner::Impl::delta_head(int index, int k_head, int n, const model::DeltaNetWeights& w,
                                 const DeltaOffsets& at, const float* conv_weights, float* scratch_row) {
  const model::Config& c = config;
  const int dim = c.state_dim;
  const int taps = c.conv_kernel;
  const int conv_dim = c.conv_dim();
  float* history = delta.history(index);  // [taps - 1][conv_dim]
  float* q = scratch_row;
  float* k = q + dim;
  float* v = k + dim;
  float* o = v + dim;

  // The head's channels from `channel` on, found at `offset` of a token's projection.
  const auto convolve = [&](int t, int offset, int channel, float* y) {
    const float* inputs[kMaxConvTaps];
    for (int i = 0; i < taps; ++i) {
      const int from = t - (taps - 1) + i;  // token of the chunk; before it, history
      inputs[i] = from >= 0 ? scratch.proj + static_cast<size_t>(from) * scratch.proj_width + offset
                            : history + static_cast<size_t>(t + i) * conv_dim + channel;
    }
    mixers.conv_silu(inputs, conv_weights + channel, conv_dim, taps, dim, y);
  };
  const int q_channel = k_head * dim;
  const int k_channel = c.key_dim() + k_head * dim;
  const auto v_channel = [&](int head) { return 2 * c.key_dim() + head * dim; };

  for (int t = 0; t < n; ++t) {
    const float* row = scratch.proj + static_cast<size_t>(t) * scratch.proj_width;
    convolve(t, at.q[k_head], q_channel, q);
    convolve(t, at.k[k_head], k_channel, k);
    mixers.l2_normalize(q, dim, c.rms_eps, 1 / std::sqrt(static_cast<float>(dim)));
    mixers.l2_normalize(k, dim, c.rms_eps, 1);
    for (const int head : at.v_heads[k_head]) {
      convolve(t, at.v[head], v_channel(head), v);
      const float decay = std::exp(softplus(row[at.alpha[head]] + w.dt[head]) * w.a[head]);
      const float beta = 1 / (1 + std::exp(-row[at.beta[head]]));
      mixers.delta_step(delta.matrix(index, head), q, k, v, decay, beta, dim, o);
      mixers.gated_norm(
          o, w.norm.data(), row + at.z[head], c.rms_eps, dim,
          scratch.core + static_cast<size_t>(t) * scratch.core_width + static_cast<size_t>(head) * dim);
    }
  }

  // The chunk's last inputs become the history; of a short chunk some of the old ones stay.
  const auto remember = [&](int offset, int channel) {
    for (int i = 0; i < taps - 1; ++i) {
      const int from = n - (taps - 1) + i;
      const float* input = from >= 0 ? scratch.proj + static_cast<size_t>(from) * scratch.proj_width + offset
                                     : history + static_cast<size_t>(n + i) * conv_dim + channel;
      std::copy(input, input + dim, history + static_cast<size_t>(i) * conv_dim + channel);
    }
  };
  remember(at.q[k_head], q_channel);
  remember(at.k[k_head], k_channel);
  for (const int head : at.v_heads[k_head]) remember(at.v[head], v_channel(head));
}

}  // namespace redlite::cpu
