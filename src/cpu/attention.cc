// Attention of one layer: project, append to the K/V cache, attend, gate, project back.
#include <algorithm>
#include <cmath>

#include "cpu/runner_impl.h"

namespace redlite::cpu {
namespace {

/// NEOX-style rotation of x[0, dims): pairs (i, i + dims / 2); `table` is cosines, then sines.
void rotate(float* x, int dims, const float* table) {
  const int half = dims / 2;
  for (int i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * table[i] - b * table[half + i];
    x[i + half] = a * table[half + i] + b * table[i];
  }
}

}  // namespace

void CpuRunner::Impl::attention(int layer, int n) {
  const model::AttentionWeights& w = weights.layers[layer].attention;
  const model::Config& c = config;
  const int index = index_in_kind[layer];
  const size_t width = scratch.proj_width;

  // proj[n][q (per head q, gate) | k | v]
  products.assign({{w.q, &scratch.embd_rows, 0, n, scratch.proj, width},
                   {w.k, &scratch.embd_rows, 0, n, scratch.proj + w.q.rows, width},
                   {w.v, &scratch.embd_rows, 0, n, scratch.proj + w.q.rows + w.k.rows, width}});
  multiply(products);

  // core[n][n_heads][head_dim]
  for (const Run& run : chunk.runs) {
    append_kv(w, index, run);
    if (run.n == 1) {
      attend_token(index, run);
    } else {
      attend_run(index, run);
    }
  }

  scratch.core_rows.resize(n, c.n_heads * c.head_dim);
  for_tokens(n,
             [&](int t) { kernels.quantize(scratch.core, scratch.core_width, t, t + 1, scratch.core_rows); });
  // y[n][n_embd]
  products.assign({{w.output, &scratch.core_rows, 0, n, scratch.y, static_cast<size_t>(c.n_embd)}});
  multiply(products);
}

/// Normalises and rotates q and k in place; stores k and v.
void CpuRunner::Impl::append_kv(const model::AttentionWeights& w, int index, const Run& run) {
  const model::Config& c = config;
  const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1);
  const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  for_tokens(run.n, [&](int t) {
    const size_t row = run.first + t;
    float* q = scratch.proj + row * scratch.proj_width;
    float* k = q + w.q.rows;
    const float* v = k + w.k.rows;
    const float* rope = scratch.rope + row * c.rope_dims;
    for (int head = 0; head < c.n_heads; ++head, q += q_stride) {
      kernels.rms_norm(q, w.q_norm.data(), c.rms_eps, c.head_dim, q);
      rotate(q, c.rope_dims, rope);
      for (int i = 0; i < c.head_dim; ++i) q[i] *= scale;
    }
    for (int head = 0; head < c.n_kv_heads; ++head, k += c.head_dim, v += c.head_dim) {
      kernels.rms_norm(k, w.k_norm.data(), c.rms_eps, c.head_dim, k);
      rotate(k, c.rope_dims, rope);
      run.sequence->kv.store(index, head, run.sequence->position() + t, k, v);
    }
  });
}

/// One token: blocks of positions side by side in all threads, then added up in their order.
void CpuRunner::Impl::attend_token(int index, const Run& run) {
  const model::Config& c = config;
  const KvCache& kv = run.sequence->kv;
  const int group = c.n_heads / c.n_kv_heads;
  const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1);
  const int n_positions = run.sequence->position() + 1;
  const float* proj = scratch.proj + static_cast<size_t>(run.first) * scratch.proj_width;
  float* core = scratch.core + static_cast<size_t>(run.first) * scratch.core_width;
  const int n_blocks = (n_positions + kAttendBlock - 1) / kAttendBlock;

  // A block's result for all heads: max[n_heads], sum[n_heads], o[n_heads][head_dim]. Block 0 begins the
  // total.
  const size_t block_width = static_cast<size_t>(c.n_heads) * (c.head_dim + 2);
  const auto result = [&](int block, int first_block, int head) -> AttendResult {
    if (block == 0) {
      return {scratch.attend_max + head, scratch.attend_sum + head,
              core + static_cast<size_t>(head) * c.head_dim};
    }
    float* at = scratch.blocks + block_width * (block - first_block);
    return {at + head, at + c.n_heads + head, at + 2 * c.n_heads + static_cast<size_t>(head) * c.head_dim};
  };

  for (int first = 0; first < n_blocks; first += kAttendBlocks) {
    const int count = std::min(kAttendBlocks, n_blocks - first);
    pool.run(count * c.n_kv_heads, 1, [&](int begin, int end, int) {
      for (int i = begin; i < end; ++i) {
        const int block = first + i / c.n_kv_heads;
        const int head = i % c.n_kv_heads;
        const int from = block * kAttendBlock;
        mixers.attend({proj + static_cast<size_t>(head) * group * q_stride, q_stride, group, c.head_dim,
                       kv.k(index, head, from), kv.v(index, head, from), kv.f16(),
                       std::min(kAttendBlock, n_positions - from)},
                      result(block, first, head * group));
      }
    });
    if (first + count == 1) break;  // block 0 is the total
    pool.run(c.n_heads, std::max(1, c.n_heads / (2 * pool.size())), [&](int begin, int end, int) {
      for (int head = begin; head < end; ++head)
        for (int block = std::max(first, 1); block < first + count; ++block)
          mixers.merge(result(0, 0, head), result(block, first, head), 1, c.head_dim);
    });
  }

  for (int head = 0; head < c.n_heads; ++head) {
    float* o = core + static_cast<size_t>(head) * c.head_dim;
    const float scale = 1 / scratch.attend_sum[head];
    if (c.gated_attention) {
      mixers.gate(o, scale, proj + static_cast<size_t>(head) * q_stride + c.head_dim, c.head_dim, o);
    } else {
      for (int i = 0; i < c.head_dim; ++i) o[i] *= scale;
    }
  }
}

/// Several tokens: some of them for one K/V head at a time go through the blocks before them, in order. Sums
/// are those of attend_token.
void CpuRunner::Impl::attend_run(int index, const Run& run) {
  const model::Config& c = config;
  const KvCache& kv = run.sequence->kv;
  const int position = run.sequence->position();
  const int n = run.n;
  const int group = c.n_heads / c.n_kv_heads;
  const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1);
  const int tiles = (n + kAttendTokens - 1) / kAttendTokens;

  pool.run(tiles * c.n_kv_heads, 1, [&](int begin, int end, int thread) {
    float* max =
        scratch.thread + static_cast<size_t>(thread) * scratch.thread_width;  // [kAttendTokens][group]
    float* sum = max + kAttendTokens * group;                                 // [kAttendTokens][group]
    float* next = sum + kAttendTokens * group;  // max[group], sum[group], o[group][head_dim]
    for (int i = begin; i < end; ++i) {
      const int head = i % c.n_kv_heads;
      // Late tokens, which look back furthest, first: the last pieces are then small ones.
      const int t_first = (tiles - 1 - i / c.n_kv_heads) * kAttendTokens;
      const int t_last = std::min(t_first + kAttendTokens, n);
      for (int from = 0; from < position + t_last; from += kAttendBlock) {
        for (int t = t_first; t < t_last; ++t) {
          const int count = std::min(kAttendBlock, position + t + 1 - from);
          if (count <= 0) continue;
          const float* q = scratch.proj + static_cast<size_t>(run.first + t) * scratch.proj_width +
                           static_cast<size_t>(head) * group * q_stride;
          float* o = scratch.core + static_cast<size_t>(run.first + t) * scratch.core_width +
                     static_cast<size_t>(head) * group * c.head_dim;
          const AttendResult total = {max + (t - t_first) * group, sum + (t - t_first) * group, o};
          const AttendResult part = from == 0 ? total : AttendResult{next, next + group, next + 2 * group};
          mixers.attend({q, q_stride, group, c.head_dim, kv.k(index, head, from), kv.v(index, head, from),
                         kv.f16(), count},
                        part);
          if (from > 0) mixers.merge(total, part, group, c.head_dim);
        }
      }
      for (int t = t_first; t < t_last; ++t) {
        for (int g = 0; g < group; ++g) {
          float* o = scratch.core + static_cast<size_t>(run.first + t) * scratch.core_width +
                     static_cast<size_t>(head * group + g) * c.head_dim;
          const float scale = 1 / sum[(t - t_first) * group + g];
          if (c.gated_attention) {
            const float* gate = scratch.proj + static_cast<size_t>(run.first + t) * scratch.proj_width +
                                static_cast<size_t>(head * group + g) * q_stride + c.head_dim;
            mixers.gate(o, scale, gate, c.head_dim, o);
          } else {
            for (int j = 0; j < c.head_dim; ++j) o[j] *= scale;
          }
        }
      }
    }
  });
}

}  // namespace redlite::cpu
