#include "gpu/kernels/attend.h"

#include "gpu/kernels/attend_parts.h"
#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct Attend::Shared {
  float weights[kMaxGroup][kTile];  // scores, then their exponentials
  float max[kMaxGroup], sum[kMaxGroup], rescale[kMaxGroup];
};
struct AttendCombine::Shared {};

namespace {

/// What a cache of binary16 makes of a value.
RL_DEVICE float stored(const Attend::Params& p, float x) {
  return p.half_kv ? simt::half_to_float(simt::float_to_half(x)) : x;
}
RL_DEVICE float load(const Attend::Params& p, const void* cache, size_t i) {
  return p.half_kv ? simt::half_to_float(static_cast<const uint16_t*>(cache)[i])
                   : static_cast<const float*>(cache)[i];
}
RL_DEVICE void store(const Attend::Params& p, void* cache, size_t i, float x) {
  if (p.half_kv) {
    static_cast<uint16_t*>(cache)[i] = simt::float_to_half(x);
  } else {
    static_cast<float*>(cache)[i] = x;
  }
}

}  // namespace

RL_RUN void Attend::run(const Params& p, Shared& shared) {
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int kv_head = static_cast<int>(simt::block_index().x), part = static_cast<int>(simt::block_index().y);
  const int token = static_cast<int>(simt::block_index().z),
            max_parts = static_cast<int>(simt::grid_size().y);
  const int n_heads = static_cast<int>(simt::grid_size().x) * p.group;
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  const int first_new = p.step->position;  // positions from here on are the launch's own tokens
  const int n_positions = first_new + token + 1;
  const Split s = split_positions(n_positions, max_parts);
  if (part >= s.parts) return;
  const int begin = part * s.length;
  const int end = begin + s.length < n_positions ? begin + s.length : n_positions;

  const int dim = p.head_dim, row_stride = dim + 4;
  float* q = simt::dynamic_shared<float>();  // [group][dim]
  float* tile = q + p.group * dim;           // [kTile][row_stride]
  const float* row = p.proj + static_cast<size_t>(token) * p.proj_stride;
  const float* rope = p.rope + static_cast<size_t>(token) * p.rope_dims;
  const size_t cache_row = static_cast<size_t>(kv_head) * p.capacity;
  for (int g = warp; g < p.group; g += kBlockWarps) {
    norm_and_rotate(row + (kv_head * p.group + g) * p.q_stride, dim, p.q_norm, p.eps, rope, p.rope_dims,
                    simt::reciprocal_sqrt(static_cast<float>(dim)), q + g * dim);
  }
  if (thread < p.group) {
    shared.max[thread] = kNoScore;
    shared.sum[thread] = 0;
  }

  float sum[kMaxGroup];  // of values, for dimension `thread` of each head
  RL_UNROLL
  for (int g = 0; g < kMaxGroup; ++g) sum[g] = 0;
  for (int first = begin; first < end; first += kTile) {
    const int n = end - first < kTile ? end - first : kTile;
    // Keys of the tile, a warp for each.
    for (int i = warp; i < n; i += kBlockWarps) {
      const int position = first + i, own = position - first_new;
      float* to = tile + i * row_stride;
      const size_t at = (cache_row + position) * dim;
      if (own < 0) {
        for (int d = lane; d < dim; d += simt::kWarpSize) to[d] = load(p, p.keys, at + d);
      } else {
        norm_and_rotate(p.proj + static_cast<size_t>(own) * p.proj_stride + p.k_offset + kv_head * dim, dim,
                        p.k_norm, p.eps, p.rope + static_cast<size_t>(own) * p.rope_dims, p.rope_dims, 1, to);
        for (int d = lane; d < dim; d += simt::kWarpSize) {
          if (own == token) store(p, p.keys, at + d, to[d]);
          to[d] = stored(p, to[d]);
        }
      }
    }
    simt::sync_block();
    for (int i = thread; i < p.group * kTile; i += kBlockThreads) {
      const int g = i / kTile, position = i % kTile;
      float score[4] = {0, 0, 0, 0};
      if (position < n) {
        const float* key = tile + position * row_stride;
        const float* query = q + g * dim;
        for (int d = 0; d < dim; d += 4) {
          RL_UNROLL
          for (int j = 0; j < 4; ++j) score[j] = simt::fma(key[d + j], query[d + j], score[j]);
        }
      }
      shared.weights[g][position] = position < n ? (score[0] + score[1]) + (score[2] + score[3]) : kNoScore;
    }
    simt::sync_block();
    for (int g = warp; g < p.group; g += kBlockWarps) {
      const float score = shared.weights[g][lane], before = shared.max[g];
      const float here = simt::warp_max(score);
      const float max = before < here ? here : before;
      const float weight = simt::exp(score - max);
      const float total = simt::warp_sum(weight);
      shared.weights[g][lane] = weight;
      if (lane == 0) {
        shared.rescale[g] = simt::exp(before - max);
        shared.sum[g] = shared.sum[g] * shared.rescale[g] + total;
        shared.max[g] = max;
      }
    }
    simt::sync_block();
    if (thread < dim) {
      RL_UNROLL
      for (int g = 0; g < kMaxGroup; ++g)
        if (g < p.group) sum[g] *= shared.rescale[g];
      for (int i = 0; i < n; ++i) {
        const int position = first + i, own = position - first_new;
        const size_t at = (cache_row + position) * dim + thread;
        float value;
        if (own < 0) {
          value = load(p, p.values, at);
        } else {
          value = p.proj[static_cast<size_t>(own) * p.proj_stride + p.v_offset + kv_head * dim + thread];
          if (own == token) store(p, p.values, at, value);
          value = stored(p, value);
        }
        RL_UNROLL
        for (int g = 0; g < kMaxGroup; ++g)
          if (g < p.group) sum[g] = simt::fma(shared.weights[g][i], value, sum[g]);
      }
    }
  }

  const size_t first_part = (static_cast<size_t>(token) * n_heads + kv_head * p.group) * max_parts + part;
  if (thread < dim) {
    RL_UNROLL
    for (int g = 0; g < kMaxGroup; ++g)
      if (g < p.group)
        p.part_values[(first_part + static_cast<size_t>(g) * max_parts) * dim + thread] = sum[g];
  }
  if (thread < p.group) {
    p.part_max[first_part + static_cast<size_t>(thread) * max_parts] = shared.max[thread];
    p.part_sum[first_part + static_cast<size_t>(thread) * max_parts] = shared.sum[thread];
  }
}

RL_RUN void AttendCombine::run(const Params& p, Shared&) {
  const int head = static_cast<int>(simt::block_index().x), token = static_cast<int>(simt::block_index().y);
  const int n_heads = static_cast<int>(simt::grid_size().x), thread = simt::thread_index();
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;
  const bool there = thread < p.head_dim;
  const Split s = split_positions(p.step->position + token + 1, p.max_parts);
  const size_t first = (static_cast<size_t>(token) * n_heads + head) * p.max_parts;
  float max = kNoScore, total = 0, sum = 0;
  RL_UNROLL_BY(8)
  for (int i = 0; i < s.parts; ++i) {
    const PartFactors f = join(max, p.part_max[first + i]);
    total = simt::fma(p.part_sum[first + i], f.part, total * f.before);
    if (there) sum = simt::fma(p.part_values[(first + i) * p.head_dim + thread], f.part, sum * f.before);
  }
  float out = sum / total;
  if (there && p.gate != nullptr) {
    out *= sigmoid(p.gate[static_cast<size_t>(token) * p.gate_stride +
                          static_cast<size_t>(head) * p.gate_head_stride + thread]);
  }
  const int width = n_heads * p.head_dim, at = head * p.head_dim + thread;
  if (there) p.core[static_cast<size_t>(token) * width + at] = out;
  QuantizedActivations(p.rounded + token * QuantizedActivations::bytes(width), width).put(at, out, there);
}

RL_KERNEL(Attend);
RL_KERNEL(AttendCombine);

}  // namespace redlite::gpu
