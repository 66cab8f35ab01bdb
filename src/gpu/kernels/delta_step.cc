#include "gpu/kernels/delta_step.h"

#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct DeltaStep::Shared {
  float q[kMaxDim], k[kMaxDim], v[kColumns];
  float squares[2];  // of q and of k
  float decay, beta;
  float gate[kColumns];                 // SiLU(z)
  float read[kBlockWarps][kColumns];    // of k, by warp
  float answer[kBlockWarps][kColumns];  // to q, by warp
};

namespace {

RL_DEVICE float softplus(float x) {
  return x > 20 ? x : simt::log1p(simt::exp(x));
}

constexpr int kBefore = DeltaStep::kMaxTaps - 1;
/// Channels of a thread at most.
constexpr int kChannels = (2 * DeltaStep::kMaxDim + DeltaStep::kColumns + kBlockThreads - 1) / kBlockThreads;

/// One channel of the convolution, as one thread has it.
struct Channel {
  int number;   ///< of the block's channels; from the last on: there is none
  int offset;   ///< in a token's projection
  int channel;  ///< of all
  float weight[DeltaStep::kMaxTaps];
  float before[kBefore];  ///< the inputs before the token's, oldest first
};

}  // namespace

RL_RUN void DeltaStep::run(const Params& p, Shared& shared) {
  constexpr int kRows = kMaxDim / kBlockWarps;  // of the state, in each thread
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int v_head = static_cast<int>(simt::block_index().x);
  const int n_v_heads = static_cast<int>(simt::grid_size().x), slices = static_cast<int>(simt::grid_size().y);
  const int slice = static_cast<int>(simt::block_index().y), first_column = slice * kColumns;
  const int column = first_column + lane;
  const int n_columns = p.dim - first_column < kColumns ? p.dim - first_column : kColumns;
  const DeltaHead head = p.heads[v_head];
  simt::let_next_start();

  // State, history and weights were written by the step before, many kernels ago, or never: they are loaded
  // while the kernel before ends. A thread has rows warp, warp + kBlockWarps, ... of column `column`.
  float* state = p.state + static_cast<size_t>(v_head) * p.dim * p.dim;
  float s[kRows];
  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kBlockWarps + warp;
    s[i] = row < p.dim && column < p.dim ? state[row * p.dim + column] : 0;
  }
  // The block's channels: q[dim], k[dim] and its columns of v.
  const int n_channels = 2 * p.dim + n_columns, n_before = p.taps - 1;
  const size_t history_size = static_cast<size_t>(n_before) * p.conv_dim;
  Channel channels[kChannels];
  float other[kChannels][kBefore];  // the history's other half: which is the right one is known only later
  RL_UNROLL
  for (int j = 0; j < kChannels; ++j) {
    Channel& c = channels[j];
    const int i = c.number = thread + j * kBlockThreads;
    if (i < p.dim) {
      c.offset = head.q + i;
      c.channel = head.k_head * p.dim + i;
    } else if (i < 2 * p.dim) {
      c.offset = head.k + i - p.dim;
      c.channel = p.key_dim + head.k_head * p.dim + i - p.dim;
    } else {
      c.offset = head.v + first_column + i - 2 * p.dim;
      c.channel = 2 * p.key_dim + v_head * p.dim + first_column + i - 2 * p.dim;
    }
    if (i >= n_channels) continue;
    RL_UNROLL
    for (int tap = 0; tap < kMaxTaps; ++tap)
      c.weight[tap] = tap < p.taps ? p.conv[static_cast<size_t>(tap) * p.conv_dim + c.channel] : 0;
    RL_UNROLL
    for (int tap = 0; tap < kBefore; ++tap) {
      const size_t at = static_cast<size_t>(tap) * p.conv_dim + c.channel;
      c.before[tap] = tap < n_before ? p.history[at] : 0;
      other[j][tap] = tap < n_before ? p.history[history_size + at] : 0;
    }
  }
  const float dt = p.dt[v_head], a = p.a[v_head];
  const float norm_weight = lane < n_columns ? p.weight[column] : 0;
  if (simt::skipped(p.skip)) return;

  const uint32_t flip = p.step->flip;
  const float q_factor = simt::reciprocal_sqrt(static_cast<float>(p.dim));
  for (int t = 0; t < p.n_tokens; ++t) {
    const float* row = p.proj + static_cast<size_t>(t) * p.proj_stride;
    const float alpha = row[head.alpha], beta_input = row[head.beta];
    const float z = lane < n_columns ? row[head.z + column] : 0;
    float input[kChannels];
    RL_UNROLL
    for (int j = 0; j < kChannels; ++j)
      input[j] = channels[j].number < n_channels ? row[channels[j].offset] : 0;
    RL_UNROLL
    for (int j = 0; j < kChannels; ++j) {
      Channel& c = channels[j];
      if (c.number >= n_channels) continue;
      if (t == 0 && flip != 0) {
        RL_UNROLL
        for (int tap = 0; tap < kBefore; ++tap) c.before[tap] = other[j][tap];
      }
      float sum = 0;
      RL_UNROLL
      for (int tap = 0; tap < kMaxTaps; ++tap) {
        if (tap < n_before) sum = simt::fma(c.weight[tap], c.before[tap < kBefore ? tap : 0], sum);
        if (tap == n_before) sum = simt::fma(c.weight[tap], input[j], sum);
      }
      RL_UNROLL
      for (int tap = 0; tap < kBefore; ++tap) {
        if (tap < n_before - 1) c.before[tap] = c.before[tap + 1 < kBefore ? tap + 1 : tap];
        if (tap == n_before - 1) c.before[tap] = input[j];
      }
      const int i = c.number;
      (i < p.dim ? shared.q[i] : i < 2 * p.dim ? shared.k[i - p.dim] : shared.v[i - 2 * p.dim]) = silu(sum);
    }
    // What is one for all goes to two warps that have one channel a thread.
    if (warp == kBlockWarps - 1) {
      const float of_head[2] = {simt::exp(softplus(alpha + dt) * a), sigmoid(beta_input)};
      if (lane == 0) {
        shared.decay = of_head[0];
        shared.beta = of_head[1];
      }
    } else if (warp == kBlockWarps - 2) {
      shared.gate[lane] = silu(z);
    }
    simt::sync_block();

    // Squares by every warp, though two are enough: without a branch they cost no time of their own.
    const float* x = warp % 2 == 0 ? shared.q : shared.k;
    float squares = 0;
    RL_UNROLL
    for (int i = 0; i < kMaxDim; i += simt::kWarpSize)
      if (i + lane < p.dim) squares = simt::fma(x[i + lane], x[i + lane], squares);
    squares = simt::warp_sum(squares);
    if (lane == 0 && warp < 2) shared.squares[warp] = squares;
    float read = 0;
    RL_UNROLL
    for (int i = 0; i < kRows; ++i)
      if (i * kBlockWarps + warp < p.dim) read = simt::fma(s[i], shared.k[i * kBlockWarps + warp], read);
    shared.read[warp][lane] = read;
    simt::sync_block();

    const float q_scale = simt::reciprocal_sqrt(shared.squares[0] + p.eps) * q_factor;
    const float k_scale = simt::reciprocal_sqrt(shared.squares[1] + p.eps);
    read = 0;
    RL_UNROLL
    for (int w = 0; w < kBlockWarps; ++w) read += shared.read[w][lane];
    const float v = lane < n_columns ? shared.v[lane] : 0;
    const float decay = shared.decay, beta = shared.beta, gate = shared.gate[lane];
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

    if (warp == 0) {
      answer = 0;
      RL_UNROLL
      for (int w = 0; w < kBlockWarps; ++w) answer += shared.answer[w][lane];
      answer = lane < n_columns ? answer * q_scale : 0;
      const float squares_of_answer = simt::warp_sum(answer * answer);
      const float gated = answer * norm_weight * gate;
      const int core = v_head * p.dim + column, width = n_v_heads * p.dim;
      if (lane < n_columns) p.core[static_cast<size_t>(t) * width + core] = gated;
      if (lane == 0)
        p.squares[(static_cast<size_t>(t) * n_v_heads + v_head) * slices + slice] = squares_of_answer;
      if (p.rounded != nullptr) {
        QuantizedActivations(p.rounded + t * QuantizedActivations::bytes(width), width)
            .put(core, gated, lane < n_columns);
      }
    }
  }

  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kBlockWarps + warp;
    if (row < p.dim && column < p.dim) state[row * p.dim + column] = s[i];
  }
  // The last inputs become the history, in its other half: other blocks may still read this one.
  float* next = p.history + (1 - flip) * history_size;
  const bool writes_qk = head.first_of_k_head != 0 && first_column == 0;
  RL_UNROLL
  for (int j = 0; j < kChannels; ++j) {
    const Channel& c = channels[j];
    if (c.number >= n_channels || (c.number < 2 * p.dim && !writes_qk)) continue;
    RL_UNROLL
    for (int tap = 0; tap < kBefore; ++tap)
      if (tap < n_before) next[static_cast<size_t>(tap) * p.conv_dim + c.channel] = c.before[tap];
  }
}

RL_KERNEL(DeltaStep);

}  // namespace redlite::gpu
