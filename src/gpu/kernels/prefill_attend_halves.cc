// Attention of many tokens with keys and values in binary16.
#include "gpu/kernels/attend_halves.h"
#include "gpu/kernels/prefill_attend.h"

namespace redlite::gpu {

namespace {

constexpr int kTile = AttendSizes::kTile;
constexpr int kOfWarp = PrefillAttend<uint16_t>::kQueries / kBlockWarps;  // queries
constexpr int kScoreStride = kTile + 4, kWeightStride = kTile + 8;        // few rows meet in a bank
static_assert(kOfWarp == AttendHalves::kQueries && kTile == AttendHalves::kDepth);

/// What one warp's threads tell each other.
struct OfWarp {
  alignas(16) uint16_t high[kOfWarp][kWeightStride], low[kOfWarp][kWeightStride];  // weights
  float score[kOfWarp][kScoreStride];
  float rescale[kOfWarp];
  PartFactors factors[kOfWarp];  // of a part that ends
  float total[kOfWarp];
};

}  // namespace

template <>
struct PrefillAttend<uint16_t>::Shared {
  OfWarp warps[kBlockWarps];
};

template <>
RL_RUN void PrefillAttend<uint16_t>::run(const Params& p, Shared& shared) {
  constexpr int kPieces = AttendSizes::kMaxHeadDim / AttendHalves::kRows;  // of 16 dimensions
  constexpr int kTogether = AttendHalves::kTogether;
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int dim = p.head_dim, stride = AttendHalves::stride(dim), row_bytes = row_stride(dim);
  const int kv_head = static_cast<int>(simt::block_index().y);
  const BlockTokens tokens = block_tokens(p, simt::block_index().x, simt::grid_size().x);
  const int first_token = tokens.first, n_queries = tokens.n * p.group;
  simt::let_next_start();
  simt::wait_for_previous();

  auto* const high = simt::dynamic_shared<uint16_t>();  // [kQueries][stride]
  uint16_t* const low = high + kQueries * stride;       // [kQueries][stride]
  uint16_t* const keys = low + kQueries * stride;       // [kTile][stride]
  uint16_t* const values = keys + kTile * stride;       // [kTile][stride]
  const auto fetch = [&](const uint16_t* from, int first, int end, uint16_t* to) {
    const uint16_t* rows =
        from + static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) * static_cast<size_t>(dim);
    fetch_rows<kTile>(rows, first, end, first + kTile, dim, row_bytes, reinterpret_cast<std::byte*>(to));
  };
  const int end = p.position + first_token + tokens.n;  // of the positions
  fetch(p.keys, 0, end, keys);
  simt::copy_commit();
  pad_rows(high, 2 * kQueries + kTile, dim);  // of keys, too
  for (int i = thread; i < kQueries * dim; i += kBlockThreads) {
    const int query = i / dim, d = i % dim;
    float value = 0;
    if (query < n_queries) {
      const size_t token = static_cast<size_t>(first_token + query / p.group);
      const size_t head = static_cast<size_t>(kv_head * p.group + query % p.group);
      value = p.q[(token * static_cast<size_t>(p.n_heads) + head) * static_cast<size_t>(dim) +
                  static_cast<size_t>(d)];
    }
    const TwoHalves halves = split(value);
    high[query * stride + d] = halves.high;
    low[query * stride + d] = halves.low;
  }

  // A warp has eight queries; query 8 warp + r: its part so far, and the parts before it. Of sums over values
  // a thread has dimensions 16 m + lane / 4 and eight behind that, of queries 2 (lane % 4) and the next.
  OfWarp& own = shared.warps[warp];
  const int first_query = kOfWarp * warp, group = lane / 4, pair = 2 * (lane % 4);
  float max[kOfWarp], sum[kOfWarp], all_max[kOfWarp], total[kOfWarp];
  float part[kPieces][4], all[kPieces][4];
  int n_positions[kOfWarp], length[kOfWarp];
  RL_UNROLL
  for (int r = 0; r < kOfWarp; ++r) {
    const int query = first_query + r;
    n_positions[r] = query < n_queries ? p.position + first_token + query / p.group + 1 : 0;
    length[r] = query < n_queries ? split_positions(n_positions[r], p.max_parts).length : kTile;
    max[r] = all_max[r] = kNoScore;
    sum[r] = total[r] = 0;
  }
  RL_UNROLL
  for (int m = 0; m < kPieces; ++m) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i) part[m][i] = all[m][i] = 0;
  }

  for (int first = 0; first < end; first += kTile) {
    simt::copy_wait<0>();
    simt::sync_block();
    fetch(p.values, first, end, values);
    simt::copy_commit();

    float score[kTile / AttendHalves::kRows][4];
    score_positions(keys, high + first_query * stride, low + first_query * stride, stride, dim, score);
    RL_UNROLL
    for (int t = 0; t < kTile / AttendHalves::kRows; ++t) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i)
        own.score[pair + i % 2][AttendHalves::kRows * t + group + 8 * (i / 2)] = score[t][i];
    }
    simt::sync_warp();
    // Softmax, the eight queries side by side: each alone is a chain of shuffles.
    float weight[kOfWarp], here[kOfWarp], of_tile[kOfWarp];
    RL_UNROLL
    for (int r = 0; r < kOfWarp; ++r)
      here[r] = weight[r] = first + lane < n_positions[r] ? own.score[r][lane] : kNoScore;
    RL_UNROLL
    for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) {
      RL_UNROLL
      for (int r = 0; r < kOfWarp; ++r) {
        const float other = simt::shuffle_xor(here[r], mask);
        here[r] = here[r] < other ? other : here[r];
      }
    }
    RL_UNROLL
    for (int r = 0; r < kOfWarp; ++r) {
      const bool there = first < n_positions[r];  // the same for all threads of the warp
      const float before = max[r];
      max[r] = there && before < here[r] ? here[r] : before;
      const float rescale = there ? simt::exp(before - max[r]) : 1;
      of_tile[r] = weight[r] = there ? simt::exp(weight[r] - max[r]) : 0;
      sum[r] *= rescale;
      const TwoHalves halves = split(weight[r]);
      own.high[r][lane] = halves.high;
      own.low[r][lane] = halves.low;
      if (lane == 0) own.rescale[r] = rescale;
    }
    RL_UNROLL
    for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) {
      RL_UNROLL
      for (int r = 0; r < kOfWarp; ++r) of_tile[r] += simt::shuffle_xor(of_tile[r], mask);
    }
    RL_UNROLL
    for (int r = 0; r < kOfWarp; ++r) sum[r] += of_tile[r];
    simt::sync_block();  // the keys have been used
    if (first + kTile < end) fetch(p.keys, first + kTile, end, keys);
    simt::copy_commit();
    simt::copy_wait<1>();
    simt::sync_block();  // the values are there

    TileWeights weights;
    weights.load(own.high[0], own.low[0], kWeightStride, 0);
    const float rescale[2] = {own.rescale[pair], own.rescale[pair + 1]};
    RL_UNROLL
    for (int m = 0; m < kPieces; m += kTogether) {
      if (AttendHalves::kRows * m >= dim) break;
      RL_UNROLL
      for (int j = m; j < m + kTogether; ++j) {
        RL_UNROLL
        for (int i = 0; i < 4; ++i) part[j][i] *= rescale[i % 2];
      }
      add_values<kTogether>(values, stride, AttendHalves::kRows * m, weights, part + m);
    }

    uint32_t ending = 0;  // a bit for each query, the same for all threads of the warp
    RL_UNROLL
    for (int r = 0; r < kOfWarp; ++r) {
      const bool ends = first + kTile >= n_positions[r] || (first + kTile) % length[r] == 0;
      if (first >= n_positions[r] || !ends) continue;
      ending |= 1u << r;
      const PartFactors f = join(all_max[r], max[r]);
      total[r] = simt::fma(sum[r], f.part, total[r] * f.before);
      max[r] = kNoScore;
      sum[r] = 0;
      if (lane == 0) own.factors[r] = f;
    }
    if (ending == 0) continue;
    simt::sync_warp();
    const PartFactors factors[2] = {own.factors[pair], own.factors[pair + 1]};
    const bool ends[2] = {(ending >> pair & 1) != 0, (ending >> (pair + 1) & 1) != 0};
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float joined = simt::fma(part[m][i], factors[i % 2].part, all[m][i] * factors[i % 2].before);
        all[m][i] = ends[i % 2] ? joined : all[m][i];
        part[m][i] = ends[i % 2] ? 0 : part[m][i];
      }
    }
    simt::sync_warp();  // the factors have been used
  }

  RL_UNROLL
  for (int r = 0; r < kOfWarp; ++r)
    if (lane == 0) own.total[r] = total[r];
  simt::sync_warp();
  RL_UNROLL
  for (int m = 0; m < kPieces; ++m) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int d = AttendHalves::kRows * m + group + 8 * (i / 2), number = first_query + pair + i % 2;
      if (number >= n_queries || d >= dim) continue;
      const size_t token = static_cast<size_t>(first_token + number / p.group);
      const size_t head = static_cast<size_t>(kv_head * p.group + number % p.group);
      float out = all[m][i] / own.total[pair + i % 2];
      if (p.gate != nullptr)
        out *= sigmoid(p.gate[token * static_cast<size_t>(p.gate_stride) +
                              head * static_cast<size_t>(p.gate_head_stride) + static_cast<size_t>(d)]);
      p.core[(token * static_cast<size_t>(p.n_heads) + head) * static_cast<size_t>(dim) +
             static_cast<size_t>(d)] = out;
    }
  }
}

RL_KERNEL(PrefillAttend<uint16_t>);

}  // namespace redlite::gpu
