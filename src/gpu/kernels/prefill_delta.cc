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
  // v, then q and k if this is the first head that has them. Loops are kept short: a warp comes through here
  // but once, and code that nothing runs twice is fetched as slowly as data.
  const int n_parts = head.first_of_k_head != 0 ? 3 : 1;
  RL_UNROLL_BY(1)
  for (int part = 0; part < n_parts; ++part) {
    const int offset = part == 0 ? head.v : part == 1 ? head.q : head.k;
    const int channel = part == 0 ? v_channel : part == 1 ? q_channel : k_channel;
    float squares[kTokens] = {};
    RL_UNROLL_BY(1)
    for (int i = lane; i < DeltaStep::kMaxDim; i += simt::kWarpSize) {
      const bool there = i < p.dim;
      float weight[kMaxTaps], inputs[kTokens + kMaxTaps - 1];
      RL_UNROLL
      for (int tap = 0; tap < kMaxTaps; ++tap) {
        weight[tap] = there && tap < p.taps
                          ? p.conv[static_cast<size_t>(tap) * static_cast<size_t>(p.conv_dim) +
                                   static_cast<size_t>(channel + i)]
                          : 0;
      }
      RL_UNROLL
      for (int t = 0; t < kTokens + kMaxTaps - 1; ++t) {
        const bool has_input = there && first + t < p.n_tokens + p.taps - 1;
        inputs[t] = has_input ? conv_input(p, history, offset + i, channel + i, first + t) : 0;
      }
      RL_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        float sum = 0;
        RL_UNROLL
        for (int tap = 0; tap < kMaxTaps; ++tap)
          if (tap < p.taps) sum = simt::fma(weight[tap], inputs[t + tap], sum);
        const float value = there ? silu(sum) : 0;
        squares[t] = simt::fma(value, value, squares[t]);
        if (first + t >= end) continue;
        const size_t token = static_cast<size_t>(first + t);
        if (part == 0) {
          if (there)
            p.v[(token * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head)) *
                    static_cast<size_t>(p.dim) +
                static_cast<size_t>(i)] = value;
        } else {
          const size_t row = token * static_cast<size_t>(p.n_k_heads) + static_cast<size_t>(head.k_head);
          const int at = i % DeltaLayout::kGroups * DeltaLayout::kRows + i / DeltaLayout::kGroups;
          (part == 1 ? p.q : p.k)[row * DeltaLayout::kHead + static_cast<size_t>(at)] = value;
        }
      }
    }
    if (part == 0) continue;
    RL_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const float sum = simt::warp_sum(squares[t]);
      const size_t row = static_cast<size_t>(first + t) * static_cast<size_t>(p.n_k_heads) +
                         static_cast<size_t>(head.k_head);
      if (lane == 0 && first + t < end)
        p.lengths[2 * row + static_cast<size_t>(part - 1)] =
            simt::reciprocal_sqrt(sum + p.eps) * (part == 1 ? q_factor : 1.0f);
    }
  }
  if (first + lane < end) {
    const size_t token = static_cast<size_t>(first + lane);
    const size_t row = token * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
    const float* proj = p.proj + token * static_cast<size_t>(p.proj_stride);
    p.decays[2 * row] = simt::exp(prefill_softplus(proj[head.alpha] + p.dt[v_head]) * p.a[v_head]);
    p.decays[2 * row + 1] = sigmoid(proj[head.beta]);
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
  constexpr int kGroups = DeltaLayout::kGroups, kRows = DeltaLayout::kRows, kOwn = kColumnsOfThread;
  const int thread = simt::thread_index();
  const int group = thread % kGroups, in_block = thread / kGroups;
  const int v_head = static_cast<int>(simt::block_index().x);
  const int first_column = static_cast<int>(simt::block_index().y) * kColumns;
  const int k_head = p.heads[v_head].k_head;
  simt::let_next_start();
  simt::wait_for_previous();

  // A thread's columns are in_block and in_block + kColumns / 2 of the block's.
  float* state =
      p.state + static_cast<size_t>(v_head) * static_cast<size_t>(p.dim) * static_cast<size_t>(p.dim);
  int column[kOwn];
  float s[kOwn][kRows];
  RL_UNROLL
  for (int c = 0; c < kOwn; ++c) {
    column[c] = first_column + in_block + c * (kColumns / kOwn);
    RL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kGroups + group;
      s[c][i] = row < p.dim && column[c] < p.dim ? state[row * p.dim + column[c]] : 0;
    }
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
  // The groups' parts of sums of columns, in the groups' order.
  const auto sum_groups = [&](float(&sums)[2 * kOwn]) {
    const int base = simt::lane_index() / kGroups * kGroups;
    float parts[kGroups][2 * kOwn];
    RL_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      RL_UNROLL
      for (int i = 0; i < 2 * kOwn; ++i) parts[g][i] = simt::shuffle(sums[i], base + g);
    }
    RL_UNROLL
    for (int i = 0; i < 2 * kOwn; ++i) sums[i] = 0;
    RL_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      RL_UNROLL
      for (int i = 0; i < 2 * kOwn; ++i) sums[i] += parts[g][i];
    }
  };
  const auto load_group = [&](const float* from, float(&to)[kRows]) {
    RL_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      const auto four = *reinterpret_cast<const simt::F32x4*>(from + group * Shared::kGroupStride + i);
      RL_UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = four.v[j];
    }
  };
  const auto put_answers = [&](int token, const float(&sums)[2 * kOwn], float scale) {
    if (group != 0) return;
    const size_t row =
        static_cast<size_t>(token) * static_cast<size_t>(p.n_v_heads) + static_cast<size_t>(v_head);
    RL_UNROLL
    for (int c = 0; c < kOwn; ++c) {
      if (column[c] < p.dim)
        p.core[row * static_cast<size_t>(p.dim) + static_cast<size_t>(column[c])] = sums[kOwn + c] * scale;
    }
  };

  // A warp does one thing after another, and chains of additions are long: what the next token reads is added
  // up beside this one's answer, and both are summed over the groups together. sums: what is read from each
  // column, then the answers.
  float sums[2 * kOwn] = {}, answer_scale = 0;
  fetch(0, shared.stages[0]);
  for (int first = 0, number = 0; first < p.n_tokens; first += kStage, ++number) {
    simt::copy_wait<0>();
    simt::sync_block();
    if (first + kStage < p.n_tokens) fetch(first + kStage, shared.stages[(number + 1) % 2]);
    const Shared::Stage& stage = shared.stages[number % 2];
    const int n = p.n_tokens - first < kStage ? p.n_tokens - first : kStage;
    float k[kRows];
    load_group(stage.k[0], k);
    RL_UNROLL
    for (int c = 0; c < kOwn; ++c) {
      sums[c] = 0;
      RL_UNROLL
      for (int i = 0; i < kRows; ++i) sums[c] = simt::fma(s[c][i], k[i], sums[c]);
    }
    for (int t = 0; t < n; ++t) {
      float q[kRows], next_k[kRows];
      load_group(stage.q[t], q);
      load_group(stage.k[t + 1 < n ? t + 1 : t], next_k);
      const float q_scale = stage.lengths[t][0], k_scale = stage.lengths[t][1];
      const float decay = stage.decays[t][0], beta = stage.decays[t][1];
      sum_groups(sums);
      if (first + t > 0) put_answers(first + t - 1, sums, answer_scale);
      answer_scale = q_scale;
      float delta[kOwn];
      RL_UNROLL
      for (int c = 0; c < kOwn; ++c) {
        const float v = column[c] < p.dim ? stage.v[t][in_block + c * (kColumns / kOwn)] : 0;
        delta[c] = (v - decay * (k_scale * sums[c])) * beta * k_scale;
        sums[c] = sums[kOwn + c] = 0;
      }
      RL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        RL_UNROLL
        for (int c = 0; c < kOwn; ++c) {
          s[c][i] = simt::fma(k[i], delta[c], decay * s[c][i]);
          sums[kOwn + c] = simt::fma(s[c][i], q[i], sums[kOwn + c]);
          sums[c] = simt::fma(s[c][i], next_k[i], sums[c]);
        }
        k[i] = next_k[i];
      }
    }
  }
  sum_groups(sums);
  put_answers(p.n_tokens - 1, sums, answer_scale);

  RL_UNROLL
  for (int c = 0; c < kOwn; ++c) {
    RL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kGroups + group;
      if (row < p.dim && column[c] < p.dim) state[row * p.dim + column[c]] = s[c][i];
    }
  }
}

RL_KERNEL(PrefillConvolve);
RL_KERNEL(PrefillScan);

}  // namespace redlite::gpu
