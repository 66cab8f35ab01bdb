// Heads of a prompt's tokens, and their attention with keys and values in F32.
#include "gpu/kernels/prefill_attend.h"

#include "gpu/kernels/attend_parts.h"

namespace redlite::gpu {

struct PrefillHeads::Shared {
  float head[kBlockWarps][AttendSizes::kMaxHeadDim];
};

template <>
struct PrefillAttend<float>::Shared {
  float weights[kBlockWarps][AttendSizes::kTile][kQueries / kBlockWarps];  // scores, then their exponentials
};

namespace {

/// What the cache keeps of a value, at element i.
RL_DEVICE inline void put_in_cache(bool half_kv, void* cache, size_t i, float x) {
  if (half_kv) {
    static_cast<uint16_t*>(cache)[i] = simt::float_to_half(x);
  } else {
    static_cast<float*>(cache)[i] = x;
  }
}

}  // namespace

RL_RUN void PrefillHeads::run(const Params& p, Shared& shared) {
  const int lane = simt::lane_index(), warp = simt::warp_index(), dim = p.head_dim;
  const size_t token = simt::block_index().x;
  simt::let_next_start();
  simt::wait_for_previous();
  const float* row = p.proj + token * static_cast<size_t>(p.proj_stride);
  const float* rope = p.rope + token * static_cast<size_t>(p.rope_dims);
  float* head = shared.head[warp];
  for (int h = warp; h < p.n_heads + p.n_kv_heads; h += kBlockWarps) {
    if (h < p.n_heads) {
      norm_and_rotate(row + h * p.q_stride, dim, p.q_norm, p.eps, rope, p.rope_dims,
                      simt::reciprocal_sqrt(static_cast<float>(dim)), head);
      float* to =
          p.q + (token * static_cast<size_t>(p.n_heads) + static_cast<size_t>(h)) * static_cast<size_t>(dim);
      for (int d = lane; d < dim; d += simt::kWarpSize) to[d] = head[d];
    } else {
      const int kv_head = h - p.n_heads;
      norm_and_rotate(row + p.k_offset + kv_head * dim, dim, p.k_norm, p.eps, rope, p.rope_dims, 1, head);
      const size_t at = (static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) +
                         static_cast<size_t>(p.position) + token) *
                        static_cast<size_t>(dim);
      for (int d = lane; d < dim; d += simt::kWarpSize) {
        put_in_cache(p.half_kv, p.keys, at + static_cast<size_t>(d), head[d]);
        put_in_cache(p.half_kv, p.values, at + static_cast<size_t>(d), row[p.v_offset + kv_head * dim + d]);
      }
    }
    simt::sync_warp();
  }
}

template <>
RL_RUN void PrefillAttend<float>::run(const Params& p, Shared& shared) {
  constexpr int kTile = AttendSizes::kTile;
  constexpr int kRows = kQueries / kBlockWarps;                             // queries of a warp
  constexpr int kWords = AttendSizes::kMaxHeadDim / (4 * simt::kWarpSize);  // of four dimensions, of a thread
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int dim = p.head_dim, q_stride = dim + 4, kv_stride = row_stride(dim);
  const int kv_head = static_cast<int>(simt::block_index().y);
  const BlockTokens tokens = block_tokens(p, simt::block_index().x, simt::grid_size().x);
  const int first_token = tokens.first, n_queries = tokens.n * p.group;
  simt::let_next_start();
  simt::wait_for_previous();

  float* q = simt::dynamic_shared<float>();                            // [kQueries][q_stride]
  auto* keys = reinterpret_cast<std::byte*>(q + kQueries * q_stride);  // [kTile] rows
  std::byte* values = keys + kTile * kv_stride;
  const float* all_keys =
      p.keys + static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) * static_cast<size_t>(dim);
  const float* all_values =
      p.values + static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) * static_cast<size_t>(dim);
  const int end = p.position + first_token + tokens.n;  // of the positions
  fetch_rows<kTile>(all_keys, 0, end, kTile, dim, kv_stride, keys);
  simt::copy_commit();
  for (int i = thread; i < kQueries * dim; i += kBlockThreads) {
    const int query = i / dim, d = i % dim;
    float value = 0;
    if (query < n_queries) {
      const size_t token = static_cast<size_t>(first_token + query / p.group);
      const size_t head = static_cast<size_t>(kv_head * p.group + query % p.group);
      value = p.q[(token * static_cast<size_t>(p.n_heads) + head) * static_cast<size_t>(dim) +
                  static_cast<size_t>(d)];
    }
    q[query * q_stride + d] = value;
  }

  // Query 8 warp + r: its part so far, and the parts before it.
  float max[kRows], sum[kRows], all_max[kRows], total[kRows];
  simt::F32x4 part[kRows][kWords], all[kRows][kWords];
  int n_positions[kRows], length[kRows];
  RL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int query = kRows * warp + r;
    n_positions[r] = query < n_queries ? p.position + first_token + query / p.group + 1 : 0;
    length[r] = query < n_queries ? split_positions(n_positions[r], p.max_parts).length : kTile;
    max[r] = all_max[r] = kNoScore;
    sum[r] = total[r] = 0;
    RL_UNROLL
    for (int w = 0; w < kWords; ++w) part[r][w] = all[r][w] = {};
  }

  for (int first = 0; first < end; first += kTile) {
    simt::copy_wait<0>();
    simt::sync_block();
    fetch_rows<kTile>(all_values, first, end, first + kTile, dim, kv_stride, values);
    simt::copy_commit();

    // Scores: a thread has four queries and two positions.
    const int row = lane / 16 * 4, position = lane % 16;
    const float* query = q + (kRows * warp + row) * q_stride;
    const float* key[2] = {reinterpret_cast<const float*>(keys + position * kv_stride),
                           reinterpret_cast<const float*>(keys + (position + 16) * kv_stride)};
    simt::F32x4 score[4][2];  // four chains each
    RL_UNROLL
    for (int r = 0; r < 4; ++r) score[r][0] = score[r][1] = {};
    for (int d = 0; d < dim; d += 4) {
      const simt::F32x4 k[2] = {four_values(key[0] + d), four_values(key[1] + d)};
      RL_UNROLL
      for (int r = 0; r < 4; ++r) {
        const simt::F32x4 x = four_values(query + r * q_stride + d);
        RL_UNROLL
        for (int i = 0; i < 2; ++i) {
          RL_UNROLL
          for (int j = 0; j < 4; ++j) score[r][i].v[j] = simt::fma(k[i].v[j], x.v[j], score[r][i].v[j]);
        }
      }
    }
    RL_UNROLL
    for (int r = 0; r < 4; ++r) {
      RL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const simt::F32x4& s = score[r][i];
        shared.weights[warp][position + 16 * i][row + r] = (s.v[0] + s.v[1]) + (s.v[2] + s.v[3]);
      }
    }
    simt::sync_warp();
    RL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float weight = 0, rescale = 1;
      if (first < n_positions[r]) {  // the same for all threads of the warp
        const float score_here = first + lane < n_positions[r] ? shared.weights[warp][lane][r] : kNoScore;
        const float here = simt::warp_max(score_here), before = max[r];
        max[r] = before < here ? here : before;
        weight = simt::exp(score_here - max[r]);
        rescale = simt::exp(before - max[r]);
        sum[r] = sum[r] * rescale + simt::warp_sum(weight);
      }
      shared.weights[warp][lane][r] = weight;
      RL_UNROLL
      for (int w = 0; w < kWords; ++w) {
        RL_UNROLL
        for (int j = 0; j < 4; ++j) part[r][w].v[j] *= rescale;
      }
    }
    simt::sync_block();  // the keys have been used
    if (first + kTile < end)
      fetch_rows<kTile>(all_keys, first + kTile, end, first + 2 * kTile, dim, kv_stride, keys);
    simt::copy_commit();
    simt::copy_wait<1>();
    simt::sync_block();  // the values are there

    for (int i = 0; i < kTile; ++i) {
      simt::F32x4 weight[kRows / 4];
      RL_UNROLL
      for (int r = 0; r < kRows / 4; ++r) weight[r] = four_values(&shared.weights[warp][i][4 * r]);
      const float* value = reinterpret_cast<const float*>(values + i * kv_stride);
      RL_UNROLL
      for (int w = 0; w < kWords; ++w) {
        const int d = 4 * (lane + w * simt::kWarpSize);
        const simt::F32x4 v = d < dim ? four_values(value + d) : simt::F32x4{};
        RL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          RL_UNROLL
          for (int j = 0; j < 4; ++j)
            part[r][w].v[j] = simt::fma(weight[r / 4].v[r % 4], v.v[j], part[r][w].v[j]);
        }
      }
    }
    RL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const bool ends = first + kTile >= n_positions[r] || (first + kTile) % length[r] == 0;
      if (first >= n_positions[r] || !ends) continue;
      const PartFactors f = join(all_max[r], max[r]);
      total[r] = simt::fma(sum[r], f.part, total[r] * f.before);
      RL_UNROLL
      for (int w = 0; w < kWords; ++w) {
        RL_UNROLL
        for (int j = 0; j < 4; ++j)
          all[r][w].v[j] = simt::fma(part[r][w].v[j], f.part, all[r][w].v[j] * f.before);
        part[r][w] = {};
      }
      max[r] = kNoScore;
      sum[r] = 0;
    }
  }

  RL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int number = kRows * warp + r;
    if (number >= n_queries) continue;
    const size_t token = static_cast<size_t>(first_token + number / p.group);
    const size_t head = static_cast<size_t>(kv_head * p.group + number % p.group);
    RL_UNROLL
    for (int w = 0; w < kWords; ++w) {
      RL_UNROLL
      for (int j = 0; j < 4; ++j) {
        const size_t d = static_cast<size_t>(4 * (lane + w * simt::kWarpSize) + j);
        if (d >= static_cast<size_t>(dim)) continue;
        float out = all[r][w].v[j] / total[r];
        if (p.gate != nullptr)
          out *= sigmoid(p.gate[token * static_cast<size_t>(p.gate_stride) +
                                head * static_cast<size_t>(p.gate_head_stride) + d]);
        p.core[(token * static_cast<size_t>(p.n_heads) + head) * static_cast<size_t>(dim) + d] = out;
      }
    }
  }
}

RL_KERNEL(PrefillHeads);
RL_KERNEL(PrefillAttend<float>);

}  // namespace redlite::gpu
