// Attention of one token with keys and values in binary16.
#include "gpu/kernels/attend_halves.h"
#include "gpu/kernels/attend.h"

namespace redlite::gpu {

namespace {

using Kernel = Attend<uint16_t>;
constexpr int kMaxGroup = AttendSizes::kMaxGroup, kQueries = AttendHalves::kQueries,
              kRows = AttendHalves::kRows;
constexpr int kScoreStride = Kernel::kStage + 4,
              kWeightStride = Kernel::kStage + 8;  // few rows meet in a bank

}  // namespace

template <>
struct Attend<uint16_t>::Shared {
  alignas(16) uint16_t high[kMaxGroup][kWeightStride], low[kMaxGroup][kWeightStride];  // weights
  float score[kMaxGroup][kScoreStride];
  float rescale[kStage / AttendSizes::kTile][kMaxGroup];
};

template <>
RL_RUN void Attend<uint16_t>::run(const Params& p, Shared& shared) {
  constexpr int kTile = AttendSizes::kTile;
  constexpr int kHeadsOfWarp = kMaxGroup / kBlockWarps;                      // whose softmax it computes
  constexpr int kEights = kMaxGroup / kQueries;                              // of heads, at most
  constexpr int kPieces = AttendSizes::kMaxHeadDim / (kRows * kBlockWarps);  // of 16 dimensions, of a warp
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int kv_head = static_cast<int>(simt::block_index().x), part = static_cast<int>(simt::block_index().y);
  const int max_parts = static_cast<int>(simt::grid_size().y);
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  const PartOfPositions own_part = part_of_positions(p.step->position, part, max_parts);
  const int begin = own_part.begin, end = own_part.end, cached_end = own_part.cached_end;
  const bool has_own = own_part.has_own;
  if (end <= begin) return;

  const int dim = p.head_dim, q_row = q_stride(dim), stride = AttendHalves::stride(dim),
            row = row_stride(dim);
  const int eights = (p.group + kQueries - 1) / kQueries;
  auto* const high = simt::dynamic_shared<uint16_t>();                  // [8 eights][stride]
  uint16_t* const low = high + kQueries * eights * stride;              // [8 eights][stride]
  uint16_t* const keys = low + kQueries * eights * stride;              // [kStage][stride]
  uint16_t* const values = keys + kStage * stride;                      // [kStage][stride]
  float* const q = reinterpret_cast<float*>(values + kStage * stride);  // [group][q_row]
  float* const own_key = q + p.group * q_row;                           // [dim]
  const size_t cache =
      static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) * static_cast<size_t>(dim);
  const auto fetch = [&](const uint16_t* from, int first, uint16_t* to) {
    const int whole_tiles = first + (end - first + kTile - 1) / kTile * kTile;
    fetch_rows<kStage>(from + cache, first, cached_end, whole_tiles, dim, row,
                       reinterpret_cast<std::byte*>(to));
  };
  fetch(p.keys, begin, keys);
  simt::copy_commit();
  fetch(p.values, begin, values);
  simt::copy_commit();
  pad_rows(high, 2 * kQueries * eights + kStage, dim);  // of keys, too
  for (int g = warp; g < p.group + (has_own ? 1 : 0); g += kBlockWarps) {
    const bool is_q = g < p.group;
    norm_and_rotate(p.proj + (is_q ? (kv_head * p.group + g) * p.q_stride : p.k_offset + kv_head * dim), dim,
                    is_q ? p.q_norm : p.k_norm, p.eps, p.rope, p.rope_dims,
                    is_q ? simt::reciprocal_sqrt(static_cast<float>(dim)) : 1, q + g * q_row);
    if (!is_q) continue;
    simt::sync_warp();
    for (int d = lane; d < dim; d += simt::kWarpSize) {
      const TwoHalves halves = split(q[g * q_row + d]);
      high[g * stride + d] = halves.high;
      low[g * stride + d] = halves.low;
    }
  }

  float max[kHeadsOfWarp], total[kHeadsOfWarp];
  RL_UNROLL
  for (int j = 0; j < kHeadsOfWarp; ++j) {
    max[j] = kNoScore;
    total[j] = 0;
  }
  // Of values a thread has dimensions dim_of(m) + lane / 4 and eight behind that, of heads 8 e + 2 (lane % 4)
  // and the next.
  const int group = lane / 4, pair = 2 * (lane % 4);
  const auto dim_of = [&](int m) { return kRows * (kPieces * warp + m); };
  float sum[kEights][kPieces][4];
  RL_UNROLL
  for (int e = 0; e < kEights; ++e) {
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) sum[e][m][i] = 0;
    }
  }

  for (int first = begin; first < end; first += kStage) {
    const int n = end - first < kStage ? end - first : kStage;
    simt::copy_wait<1>();
    simt::sync_block();  // the keys are there
    if (has_own && first + n == end) {
      if (thread < dim) {
        const uint16_t key = simt::float_to_half(own_key[thread]),
                       value = simt::float_to_half(p.proj[p.v_offset + kv_head * dim + thread]);
        const size_t at = cache + static_cast<size_t>(end - 1) * static_cast<size_t>(dim) + thread;
        p.keys[at] = keys[(n - 1) * stride + thread] = key;
        p.values[at] = values[(n - 1) * stride + thread] = value;
      }
      simt::sync_block();
    }

    // Scores: a warp has 16 positions and eight heads.
    static_assert(kStage / kRows * kEights == kBlockWarps);
    const int position = kRows * (warp % (kStage / kRows)), first_head = kQueries * (warp / (kStage / kRows));
    if (position < n && first_head < p.group) {
      float score[1][4];
      score_positions(keys + position * stride, high + first_head * stride, low + first_head * stride, stride,
                      dim, score);
      RL_UNROLL
      for (int i = 0; i < 4; ++i)
        shared.score[first_head + pair + i % 2][position + group + 8 * (i / 2)] = score[0][i];
    }
    simt::sync_block();  // the scores are there, the keys have been used
    if (first + kStage < end) fetch(p.keys, first + kStage, keys);
    simt::copy_commit();

    RL_UNROLL
    for (int j = 0; j < kHeadsOfWarp; ++j) {
      const int g = warp + j * kBlockWarps;
      if (g >= p.group) continue;
      for (int tile = 0; tile * kTile < n; ++tile) {
        const int i = tile * kTile + lane;
        const float score = i < n ? shared.score[g][i] : kNoScore, before = max[j];
        const float here = simt::warp_max(score);
        max[j] = before < here ? here : before;
        const float weight = simt::exp(score - max[j]), rescale = simt::exp(before - max[j]);
        total[j] = total[j] * rescale + simt::warp_sum(weight);
        const TwoHalves halves = split(weight);
        shared.high[g][i] = halves.high;
        shared.low[g][i] = halves.low;
        if (lane == 0) shared.rescale[tile][g] = rescale;
      }
    }
    simt::copy_wait<1>();
    simt::sync_block();  // values and weights are there

    for (int tile = 0; tile * kTile < n && dim_of(0) < dim; ++tile) {
      RL_UNROLL
      for (int e = 0; e < kEights; ++e) {
        if (e >= eights) break;
        TileWeights weights;
        weights.load(shared.high[kQueries * e], shared.low[kQueries * e], kWeightStride, tile * kTile);
        const float* rescale = &shared.rescale[tile][kQueries * e + pair];
        RL_UNROLL
        for (int m = 0; m < kPieces; ++m) {
          RL_UNROLL
          for (int i = 0; i < 4; ++i) sum[e][m][i] *= rescale[i % 2];
        }
        add_values<kPieces>(values + tile * kTile * stride, stride, dim_of(0), weights, sum[e]);
      }
    }
    simt::sync_block();  // the values have been used
    if (first + kStage < end) fetch(p.values, first + kStage, values);
    simt::copy_commit();
  }

  const auto place = [&](int g) { return static_cast<size_t>(kv_head * p.group + g) * max_parts + part; };
  RL_UNROLL
  for (int e = 0; e < kEights; ++e) {
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int g = kQueries * e + pair + i % 2, d = dim_of(m) + group + 8 * (i / 2);
        if (g < p.group && d < dim) p.part_values[place(g) * dim + d] = sum[e][m][i];
      }
    }
  }
  RL_UNROLL
  for (int j = 0; j < kHeadsOfWarp; ++j) {
    const int g = warp + j * kBlockWarps;
    if (g >= p.group || lane != 0) continue;
    p.part_max[place(g)] = max[j];
    p.part_sum[place(g)] = total[j];
  }
}

RL_KERNEL(Attend<uint16_t>);

}  // namespace redlite::gpu
