#include "gpu/kernels/prefill_delta.h"

#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct PrefillConvolve::Shared {};

/// Two stages: one is used while the other comes in.
struct PrefillScan::Shared {
  static constexpr int kGroupStride = DeltaLayout::kRows + 4;  // keeps the groups out of each other's banks
  struct Stage {
    alignas(16) float q[kStage][DeltaLayout::kGroups * kGroupStride];
    alignas(16) float k[kStage][DeltaLayout::kGroups * kGroupStride];
    float v[kStage][kColumns];
    float lengths[kStage][2];
    float decays[kStage][2];
  };
  Stage stages[2];
};

namespace {

RL_DEVICE float prefill_softplus(float x) {
  return x > 20 ? x : simt::log1p(simt::exp(x));
}

/// Input `i` (0 to taps - 2 + n_tokens) of a channel, of those that end with the launch's last token.
RL_DEVICE float conv_input(const PrefillConvolve::Params& p, const float* history, int offset, int channel,
                           int i) {
  const int token = i - (p.taps - 1);
  return token >= 0 ? p.proj[static_cast<size_t>(token) * static_cast<size_t>(p.proj_stride) +
                             static_cast<size_t>(offset)]
                    : history[static_cast<size_t>(i) * static_cast<size_t>(p.conv_dim) +
                              static_cast<size_t>(channel)];
}

/// The convolution of a head's channels [first_channel, + dim) for one token; lane l has l, l + 32, ... of
/// them.
RL_DEVICE void convolve_head(const PrefillConvolve::Params& p, const float* history, int offset,
                             int first_channel, int token,
                             float (&out)[DeltaStep::kMaxDim / simt::kWarpSize]) {
  RL_UNROLL
  for (int j = 0; j < DeltaStep::kMaxDim / simt::kWarpSize; ++j) {
    const int i = simt::lane_index() + j * simt::kWarpSize;
    out[j] = 0;
    if (i >= p.dim) continue;
    float sum = 0;
    for (int tap = 0; tap < p.taps; ++tap) {
      sum = simt::fma(p.conv[static_cast<size_t>(tap) * static_cast<size_t>(p.conv_dim) +
                             static_cast<size_t>(first_channel + i)],
                      conv_input(p, history, offset + i, first_channel + i, token + tap), sum);
    }
    out[j] = silu(sum);
  }
}

/// q or k of a token to where the scan looks for it; returns the sum of the squares.
RL_DEVICE float put_head(const float (&values)[DeltaStep::kMaxDim / simt::kWarpSize], int dim, float* to) {
  float squares = 0;
  RL_UNROLL
  for (int j = 0; j < DeltaStep::kMaxDim / simt::kWarpSize; ++j) {
    const int i = simt::lane_index() + j * simt::kWarpSize;
    if (i < dim) squares = simt::fma(values[j], values[j], squares);
    to[i % DeltaLayout::kGroups * DeltaLayout::kRows + i / DeltaLayout::kGroups] = values[j];
  }
  return simt::warp_sum(squares);
}

}  // namespace

RL_RUN void PrefillConvolve::run(const Params& p, Shared&) {
  const int lane = simt::lane_index();
  const int v_head = static_cast<int>(simt::block_index().y) * kBlockWarps + simt::warp_index();
  const int first = static_cast<int>(simt::block_index().x) * kTokens;
  const int end = first + kTokens < p.n_tokens ? first + kTokens : p.n_tokens;
  simt::let_next_start();
  simt::wait_for_previous();
  if (v_head >= p.n_v_heads) return;
  const DeltaHead head = p.heads[v_head];
  const size_t history_size = static_cast<size_t>(p.taps - 1) * static_cast<size_t>(p.conv_dim);
  const float* history = p.history + p.flip * history_size;
  const int q_channel = head.k_head * p.dim, k_channel = p.key_dim + q_channel;
  const int v_channel = 2 * p.key_dim + v_head * p.dim;

  const float q_factor = simt::reciprocal_sqrt(static_cast<float>(p.dim));
  for (int t = first; t < end; ++t) {
    const size_t token = static_cast<size_t>(t);
    float values[DeltaStep::kMaxDim / simt::kWarpSize];
    convolve_head(p, history, head.v, v_channel, t, values);
    const size_t v_row = token * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
    RL_UNROLL
    for (int j = 0; j < DeltaStep::kMaxDim / simt::kWarpSize; ++j) {
      const int i = lane + j * simt::kWarpSize;
      if (i < p.dim) p.v[v_row * static_cast<size_t>(p.dim) + static_cast<size_t>(i)] = values[j];
    }
    if (head.first_of_k_head != 0) {
      const size_t k_row = token * static_cast<size_t>(p.n_k_heads) + static_cast<size_t>(head.k_head);
      convolve_head(p, history, head.q, q_channel, t, values);
      const float q_squares = put_head(values, p.dim, p.q + k_row * DeltaLayout::kHead);
      convolve_head(p, history, head.k, k_channel, t, values);
      const float k_squares = put_head(values, p.dim, p.k + k_row * DeltaLayout::kHead);
      if (lane == 0) {
        p.lengths[2 * k_row] = simt::reciprocal_sqrt(q_squares + p.eps) * q_factor;
        p.lengths[2 * k_row + 1] = simt::reciprocal_sqrt(k_squares + p.eps);
      }
    }
    if (lane == 0) {
      const float* row = p.proj + token * static_cast<size_t>(p.proj_stride);
      p.decays[2 * v_row] = simt::exp(prefill_softplus(row[head.alpha] + p.dt[v_head]) * p.a[v_head]);
      p.decays[2 * v_row + 1] = sigmoid(row[head.beta]);
    }
  }

  // The last inputs become the history, in its other half.
  if (end != p.n_tokens) return;
  float* next = p.history + (1 - p.flip) * history_size;
  for (int j = 0; j < p.taps - 1; ++j) {
    float* to = next + static_cast<size_t>(j) * static_cast<size_t>(p.conv_dim);
    for (int i = lane; i < p.dim; i += simt::kWarpSize) {
      to[v_channel + i] = conv_input(p, history, head.v + i, v_channel + i, p.n_tokens + j);
      if (head.first_of_k_head == 0) continue;
      to[q_channel + i] = conv_input(p, history, head.q + i, q_channel + i, p.n_tokens + j);
      to[k_channel + i] = conv_input(p, history, head.k + i, k_channel + i, p.n_tokens + j);
    }
  }
}

RL_RUN void PrefillScan::run(const Params& p, Shared& shared) {
  constexpr int kGroups = DeltaLayout::kGroups, kRows = DeltaLayout::kRows;
  const int thread = simt::thread_index();
  const int group = thread % kGroups, in_block = thread / kGroups;
  const int v_head = static_cast<int>(simt::block_index().x);
  const int first_column = static_cast<int>(simt::block_index().y) * kColumns;
  const int column = first_column + in_block;
  const int k_head = p.heads[v_head].k_head;
  simt::let_next_start();
  simt::wait_for_previous();

  float* state =
      p.state + static_cast<size_t>(v_head) * static_cast<size_t>(p.dim) * static_cast<size_t>(p.dim);
  float s[kRows];
  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kGroups + group;
    s[i] = row < p.dim && column < p.dim ? state[row * p.dim + column] : 0;
  }

  const auto fetch = [&](int first, Shared::Stage& to) {
    const int n = p.n_tokens - first < kStage ? p.n_tokens - first : kStage;
    constexpr int kWords = DeltaLayout::kHead / 4;  // of 16 bytes
    for (int i = thread; i < n * kWords; i += kThreads) {
      const int t = i / kWords, word = i % kWords;
      const int at = 4 * word / kRows * Shared::kGroupStride + 4 * word % kRows;
      const size_t row =
          static_cast<size_t>(first + t) * static_cast<size_t>(p.n_k_heads) + static_cast<size_t>(k_head);
      simt::copy_async16(&to.q[t][at], p.q + row * DeltaLayout::kHead + 4 * word);
      simt::copy_async16(&to.k[t][at], p.k + row * DeltaLayout::kHead + 4 * word);
    }
    for (int i = thread; i < n * kColumns; i += kThreads) {
      const int t = i / kColumns, c = i % kColumns;
      const size_t row =
          static_cast<size_t>(first + t) * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
      if (first_column + c < p.dim)
        simt::copy_async4(&to.v[t][c], p.v + row * static_cast<size_t>(p.dim) + first_column + c);
    }
    for (int i = thread; i < 2 * n; i += kThreads) {
      const size_t t = static_cast<size_t>(first + i / 2);
      const size_t k_row = t * static_cast<size_t>(p.n_k_heads) + static_cast<size_t>(k_head);
      const size_t v_row = t * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
      simt::copy_async4(&to.lengths[i / 2][i % 2], p.lengths + 2 * k_row + static_cast<size_t>(i % 2));
      simt::copy_async4(&to.decays[i / 2][i % 2], p.decays + 2 * v_row + static_cast<size_t>(i % 2));
    }
    simt::copy_commit();
  };
  // The groups' parts of a column's sum, in the groups' order.
  const auto sum_groups = [&](float part) {
    const int base = simt::lane_index() / kGroups * kGroups;
    float sum = 0;
    RL_UNROLL
    for (int g = 0; g < kGroups; ++g) sum += simt::shuffle(part, base + g);
    return sum;
  };

  fetch(0, shared.stages[0]);
  for (int first = 0, number = 0; first < p.n_tokens; first += kStage, ++number) {
    simt::copy_wait<0>();
    simt::sync_block();
    if (first + kStage < p.n_tokens) fetch(first + kStage, shared.stages[(number + 1) % 2]);
    const Shared::Stage& stage = shared.stages[number % 2];
    const int n = p.n_tokens - first < kStage ? p.n_tokens - first : kStage;
    for (int t = 0; t < n; ++t) {
      const float q_scale = stage.lengths[t][0], k_scale = stage.lengths[t][1];
      const float decay = stage.decays[t][0], beta = stage.decays[t][1];
      float k[kRows];
      RL_UNROLL
      for (int i = 0; i < kRows; i += 4) {
        const simt::F32x4 four =
            *reinterpret_cast<const simt::F32x4*>(&stage.k[t][group * Shared::kGroupStride + i]);
        RL_UNROLL
        for (int j = 0; j < 4; ++j) k[i + j] = four.v[j];
      }
      float read = 0;
      RL_UNROLL
      for (int i = 0; i < kRows; ++i) read = simt::fma(s[i], k[i], read);
      read = sum_groups(read);
      const float v = column < p.dim ? stage.v[t][in_block] : 0;
      const float delta = (v - decay * (k_scale * read)) * beta * k_scale;
      float answer = 0;
      RL_UNROLL
      for (int i = 0; i < kRows; i += 4) {
        const simt::F32x4 q =
            *reinterpret_cast<const simt::F32x4*>(&stage.q[t][group * Shared::kGroupStride + i]);
        RL_UNROLL
        for (int j = 0; j < 4; ++j) {
          s[i + j] = simt::fma(k[i + j], delta, decay * s[i + j]);
          answer = simt::fma(s[i + j], q.v[j], answer);
        }
      }
      answer = sum_groups(answer);
      if (group == 0 && column < p.dim) {
        const size_t row =
            static_cast<size_t>(first + t) * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
        p.core[row * static_cast<size_t>(p.dim) + static_cast<size_t>(column)] = answer * q_scale;
      }
    }
  }

  RL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kGroups + group;
    if (row < p.dim && column < p.dim) state[row * p.dim + column] = s[i];
  }
}

RL_KERNEL(PrefillConvolve);
RL_KERNEL(PrefillScan);

}  // namespace redlite::gpu
