#include "gpu/kernels/delta_step.h"

#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct DeltaStep::Shared {
  float q[kMaxDim], k[kMaxDim], v[kColumns];
  float q_squares, k_squares;
  float read[kBlockWarps][kColumns];    // of k, by warp
  float answer[kBlockWarps][kColumns];  // to q, by warp
};

namespace {

RL_DEVICE float softplus(float x) {
  return x > 20 ? x : simt::log1p(simt::exp(x));
}

/// One channel of the convolution: where its inputs lie.
struct Channel {
  int offset;  ///< in a token's projection
  int channel;
};

/// Input `i` (0 to taps - 2 + n_tokens) of those that end with the launch's last token.
RL_DEVICE float input(const DeltaStep::Params& p, const float* history, Channel c, int i) {
  const int token = i - (p.taps - 1);
  return token >= 0 ? p.proj[static_cast<size_t>(token) * p.proj_stride + c.offset]
                    : history[static_cast<size_t>(i) * p.conv_dim + c.channel];
}

RL_DEVICE float convolve(const DeltaStep::Params& p, const float* history, Channel c, int token) {
  float sum = 0;
  for (int i = 0; i < p.taps; ++i)
    sum = simt::fma(p.conv[static_cast<size_t>(i) * p.conv_dim + c.channel], input(p, history, c, token + i),
                    sum);
  return silu(sum);
}

}  // namespace

RL_RUN void DeltaStep::run(const Params& p, Shared& shared) {
  constexpr int kRows = kMaxDim / kBlockWarps;  // of the state, in each thread
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int v_head = static_cast<int>(simt::block_index().x);
  const int first_column = static_cast<int>(simt::block_index().y) * kColumns;
  const int column = first_column + lane;
  const int n_columns = p.dim - first_column < kColumns ? p.dim - first_column : kColumns;
  const DeltaHead head = p.heads[v_head];
  simt::let_next_start();

  // The state was written by the step before, many kernels ago: it is loaded while the kernel before ends. A
  // thread has rows warp, warp + kBlockWarps, ... of column `column`.
  float* state = p.state + static_cast<size_t>(v_head) * p.dim * p.dim;
  float s[kRows];
  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kBlockWarps + warp;
    s[i] = row < p.dim && column < p.dim ? state[row * p.dim + column] : 0;
  }
  if (simt::skipped(p.skip)) return;

  const size_t history_size = static_cast<size_t>(p.taps - 1) * p.conv_dim;
  const float* history = p.history + p.step->flip * history_size;

  // The block's channels: q[dim], k[dim] and its columns of v.
  const int n_channels = 2 * p.dim + n_columns;
  const auto channel = [&](int i) {
    if (i < p.dim) return Channel{head.q + i, head.k_head * p.dim + i};
    if (i < 2 * p.dim) return Channel{head.k + i - p.dim, p.key_dim + head.k_head * p.dim + i - p.dim};
    const int j = first_column + i - 2 * p.dim;
    return Channel{head.v + j, 2 * p.key_dim + v_head * p.dim + j};
  };

  const float q_factor = simt::reciprocal_sqrt(static_cast<float>(p.dim));
  for (int t = 0; t < p.n_tokens; ++t) {
    for (int i = thread; i < n_channels; i += kBlockThreads) {
      const float y = convolve(p, history, channel(i), t);
      (i < p.dim ? shared.q[i] : i < 2 * p.dim ? shared.k[i - p.dim] : shared.v[i - 2 * p.dim]) = y;
    }
    simt::sync_block();
    if (warp < 2) {
      const float* x = warp == 0 ? shared.q : shared.k;
      float squares = 0;
      for (int i = lane; i < p.dim; i += simt::kWarpSize) squares = simt::fma(x[i], x[i], squares);
      squares = simt::warp_sum(squares);
      if (lane == 0) (warp == 0 ? shared.q_squares : shared.k_squares) = squares;
    }
    simt::sync_block();
    const float q_scale = simt::reciprocal_sqrt(shared.q_squares + p.eps) * q_factor;
    const float k_scale = simt::reciprocal_sqrt(shared.k_squares + p.eps);
    const float* row = p.proj + static_cast<size_t>(t) * p.proj_stride;
    const float decay = simt::exp(softplus(row[head.alpha] + p.dt[v_head]) * p.a[v_head]);
    const float beta = sigmoid(row[head.beta]);

    float read = 0;
    RL_UNROLL
    for (int i = 0; i < kRows; ++i)
      if (i * kBlockWarps + warp < p.dim) read = simt::fma(s[i], shared.k[i * kBlockWarps + warp], read);
    shared.read[warp][lane] = read;
    simt::sync_block();
    read = 0;
    for (int w = 0; w < kBlockWarps; ++w) read += shared.read[w][lane];
    const float v = lane < n_columns ? shared.v[lane] : 0;
    const float delta = (v - decay * (k_scale * read)) * beta * k_scale;
    float answer = 0;
    RL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (i * kBlockWarps + warp < p.dim) {
        s[i] = simt::fma(shared.k[i * kBlockWarps + warp], delta, decay * s[i]);
        answer = simt::fma(s[i], shared.q[i * kBlockWarps + warp], answer);
      }
    }
    shared.answer[warp][lane] = answer;
    simt::sync_block();
    if (warp == 0 && lane < n_columns) {
      answer = 0;
      for (int w = 0; w < kBlockWarps; ++w) answer += shared.answer[w][lane];
      p.core[static_cast<size_t>(t) * p.core_stride + v_head * p.dim + column] = answer * q_scale;
    }
  }

  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kBlockWarps + warp;
    if (row < p.dim && column < p.dim) state[row * p.dim + column] = s[i];
  }
  // The last inputs become the history, in its other half: other blocks may still read this one.
  float* next = p.history + (1 - p.step->flip) * history_size;
  const bool writes_qk = head.first_of_k_head != 0 && first_column == 0;
  for (int i = thread + (writes_qk ? 0 : 2 * p.dim); i < n_channels; i += kBlockThreads) {
    const Channel c = channel(i);
    for (int j = 0; j < p.taps - 1; ++j)
      next[static_cast<size_t>(j) * p.conv_dim + c.channel] = input(p, history, c, p.n_tokens + j);
  }
}

RL_KERNEL(DeltaStep);

}  // namespace redlite::gpu
