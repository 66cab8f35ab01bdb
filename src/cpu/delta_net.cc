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

  // core[n][n_v_heads][state_dim]; a head goes through all tokens of a sequence in one thread. With many
  // threads the V heads of a K head part, and each computes q and k again.
  const int per_k = c.n_v_heads / c.n_k_heads;
  const int n_heads = c.n_v_heads * static_cast<int>(chunk.runs.size());  // of all sequences
  const bool part = n_heads / per_k < 4 * pool.size();
  const int grain = std::max(part ? 1 : per_k, n_heads / (4 * pool.size()) / per_k * per_k);
  pool.run(n_heads, grain, [&](int first, int last, int thread) {
    float* thread_scratch = scratch.thread + static_cast<size_t>(thread) * scratch.thread_width;
    while (first < last) {
      const Run& run = chunk.runs[first / c.n_v_heads];
      const int k_head = first % c.n_v_heads / per_k;
      const int count = std::min(last, (first / per_k + 1) * per_k) - first;
      const std::span<const int> heads = std::span(at.v_heads[k_head]).subspan(first % per_k, count);
      first += count;
      const bool more = first < last && first % c.n_v_heads != 0;
      const int next_head = more ? at.v_heads[first % c.n_v_heads / per_k][first % per_k] : -1;
      delta_heads(layer, k_head, heads, next_head, run, thread_scratch);
    }
  });
  for (const Run& run : chunk.runs) remember_inputs(layer, run);

  scratch.core_rows.resize(n, c.value_dim());
  for_tokens(n,
             [&](int t) { kernels.quantize(scratch.core, scratch.core_width, t, t + 1, scratch.core_rows); });
  // y[n][n_embd]
  products.assign({{w.output, &scratch.core_rows, 0, n, scratch.y, static_cast<size_t>(c.n_embd)}});
  multiply(products);
}

/// Some V heads of one K head, through the tokens of a sequence; this thread's next one is next_head, or -1.
void CpuRunner::Impl::delta_heads(int layer, int k_head, std::span<const int> v_heads, int next_head,
                                  const Run& run, float* thread_scratch) {
  const model::DeltaNetWeights& w = weights.layers[layer].delta;
  const DeltaOffsets& at = delta_offsets[layer];
  const model::Config& c = config;
  const int index = index_in_kind[layer];
  DeltaState& delta = run.sequence->delta;
  const int position = run.sequence->position();
  const int n = run.n;
  const float* proj = scratch.proj + static_cast<size_t>(run.first) * scratch.proj_width;
  float* core = scratch.core + static_cast<size_t>(run.first) * scratch.core_width;
  const int dim = c.state_dim;
  const size_t block_width = static_cast<size_t>(kDeltaTokens) * dim;
  float* q = thread_scratch;           // [kDeltaTokens][dim]
  float* k = q + block_width;          // [kDeltaTokens][dim]
  float* v = k + block_width;          // [kDeltaTokens][dim]
  float* o = v + block_width;          // [kDeltaTokens][dim]
  float* decay = o + block_width;      // [kDeltaTokens]
  float* beta = decay + kDeltaTokens;  // [kDeltaTokens]

  // The head's channels from `channel` on, found at `offset` of a token's projection.
  const auto convolve = [&](int t, int offset, int channel, float* y) {
    const float* inputs[kMaxConvTaps];
    const int taps = c.conv_kernel;
    for (int i = 0; i < taps; ++i) {
      const int from = t - (taps - 1) + i;  // token of the chunk; before it, history
      inputs[i] = from >= 0 ? proj + static_cast<size_t>(from) * scratch.proj_width + offset
                            : delta.input(index, position + from) + channel;
    }
    mixers.conv_silu(inputs, conv[layer].data() + channel, c.conv_dim(), taps, dim, y);
  };

  for (int first = 0; first < n; first += kDeltaTokens) {
    const int count = std::min(kDeltaTokens, n - first);
    for (int t = 0; t < count; ++t) {
      const size_t row = static_cast<size_t>(t) * dim;
      convolve(first + t, at.q[k_head], k_head * dim, q + row);
      convolve(first + t, at.k[k_head], c.key_dim() + k_head * dim, k + row);
      mixers.l2_normalize(q + row, dim, c.rms_eps, 1 / std::sqrt(static_cast<float>(dim)));
      mixers.l2_normalize(k + row, dim, c.rms_eps, 1);
    }
    for (size_t i = 0; i < v_heads.size(); ++i) {
      const int head = v_heads[i];
      for (int t = 0; t < count; ++t) {
        const float* row = proj + static_cast<size_t>(first + t) * scratch.proj_width;
        convolve(first + t, at.v[head], 2 * c.key_dim() + head * dim, v + static_cast<size_t>(t) * dim);
        decay[t] = std::exp(softplus(row[at.alpha[head]] + w.dt[head]) * w.a[head]);
        beta[t] = 1 / (1 + std::exp(-row[at.beta[head]]));
      }
      const int after = i + 1 < v_heads.size() ? v_heads[i + 1] : next_head;
      const float* next = n == 1 && after >= 0 ? delta.matrix(index, after) : nullptr;
      mixers.delta_rule(delta.matrix(index, head), {count, q, k, v, decay, beta, o}, dim, next);
      for (int t = 0; t < count; ++t) {
        mixers.gated_norm(
            o + static_cast<size_t>(t) * dim, w.norm.data(),
            proj + static_cast<size_t>(first + t) * scratch.proj_width + at.z[head], c.rms_eps, dim,
            core + static_cast<size_t>(first + t) * scratch.core_width + static_cast<size_t>(head) * dim);
      }
    }
  }
}

/// A sequence's last inputs of the convolution, for the tokens to come.
void CpuRunner::Impl::remember_inputs(int layer, const Run& run) {
  const DeltaOffsets& at = delta_offsets[layer];
  const model::Config& c = config;
  const int dim = c.state_dim;
  for (int t = std::max(0, run.n - (c.conv_kernel - 1)); t < run.n; ++t) {
    const float* row = scratch.proj + static_cast<size_t>(run.first + t) * scratch.proj_width;
    float* to = run.sequence->delta.input(index_in_kind[layer], run.sequence->position() + t);
    for (const std::vector<int>* offsets : {&at.q, &at.k, &at.v}) {
      for (const int offset : *offsets) to = std::copy_n(row + offset, dim, to);
    }
  }
}

}  // namespace redlite::cpu
