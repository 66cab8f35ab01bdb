// Attention of one token with keys and values in F32, and what puts the parts of all kinds together.
#include "gpu/kernels/attend.h"

#include "gpu/kernels/attend_parts.h"
#include "gpu/kernels/block.h"

namespace redlite::gpu {

template <>
struct Attend<float>::Shared {
  static constexpr int kStride = AttendSizes::kMaxGroup + 4;  // fewer positions meet in a bank
  float weights[kStage][kStride];                             // scores, then their exponentials
  float rescale[kStage / AttendSizes::kTile][AttendSizes::kMaxGroup];
};
struct AttendCombine::Shared {
  float max[kBlockWarps];
  float sum[AttendSizes::kMostParts];
  PartFactors factors[AttendSizes::kMostParts];
};

namespace {

struct TwoValues {
  float v[2];
};
RL_DEVICE TwoValues two_values(const float* from) {
  const simt::U32x2 words = *reinterpret_cast<const simt::U32x2*>(from);
  return {{simt::float_of_bits(words.v[0]), simt::float_of_bits(words.v[1])}};
}

}  // namespace

template <>
RL_RUN void Attend<float>::run(const Params& p, Shared& shared) {
  constexpr int kTile = AttendSizes::kTile, kMaxGroup = AttendSizes::kMaxGroup;
  constexpr int kHeadsOfWarp = kMaxGroup / kBlockWarps;  // whose softmax it computes: warp, warp + 8
  constexpr int kHalf = kMaxGroup / 2;                   // heads whose values a thread adds up, at most
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int kv_head = static_cast<int>(simt::block_index().x), part = static_cast<int>(simt::block_index().y);
  const int max_parts = static_cast<int>(simt::grid_size().y);
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  const PartOfPositions own_part = part_of_positions(p.step->position, part, max_parts);
  const int begin = own_part.begin, end = own_part.end, cached_end = own_part.cached_end;
  const bool has_own = own_part.has_own;
  if (end <= begin) return;

  const int dim = p.head_dim, q_row = q_stride(dim), row = row_stride(dim);
  float* q = simt::dynamic_shared<float>();                         // [group][q_row]
  float* own_key = q + p.group * q_row;                             // [dim]
  std::byte* keys = reinterpret_cast<std::byte*>(own_key + q_row);  // [kStage] rows
  std::byte* values = keys + kStage * row;                          // [kStage] rows
  const size_t cache =
      static_cast<size_t>(kv_head) * static_cast<size_t>(p.capacity) * static_cast<size_t>(dim);
  fetch_rows<kStage>(p.keys + cache, begin, cached_end, cached_end, dim, row, keys);
  simt::copy_commit();
  fetch_rows<kStage>(p.values + cache, begin, cached_end, cached_end, dim, row, values);
  simt::copy_commit();
  for (int g = warp; g < p.group + (has_own ? 1 : 0); g += kBlockWarps) {
    const bool is_q = g < p.group;
    norm_and_rotate(p.proj + (is_q ? (kv_head * p.group + g) * p.q_stride : p.k_offset + kv_head * dim), dim,
                    is_q ? p.q_norm : p.k_norm, p.eps, p.rope, p.rope_dims,
                    is_q ? simt::reciprocal_sqrt(static_cast<float>(dim)) : 1, q + g * q_row);
  }

  float max[kHeadsOfWarp], total[kHeadsOfWarp];
  RL_UNROLL
  for (int j = 0; j < kHeadsOfWarp; ++j) {
    max[j] = kNoScore;
    total[j] = 0;
  }
  // Of values: dimensions d and d + 1 of the heads from first_head on, at most kHalf of them.
  const int d = 2 * (thread % (kBlockThreads / 2)), n_half = p.group <= kMaxGroup / 2 ? kHalf / 2 : kHalf;
  const int first_head = thread / (kBlockThreads / 2) * n_half;
  float sum[kHalf][2];
  RL_UNROLL
  for (int h = 0; h < kHalf; ++h) sum[h][0] = sum[h][1] = 0;

  for (int first = begin; first < end; first += kStage) {
    const int n = end - first < kStage ? end - first : kStage;
    simt::copy_wait<1>();
    simt::sync_block();  // the keys are there
    if (has_own && first + n == end) {
      if (thread < dim) {
        const float key = own_key[thread], value = p.proj[p.v_offset + kv_head * dim + thread];
        const size_t at = cache + static_cast<size_t>(end - 1) * static_cast<size_t>(dim) + thread;
        p.keys[at] = reinterpret_cast<float*>(keys + (n - 1) * row)[thread] = key;
        p.values[at] = reinterpret_cast<float*>(values + (n - 1) * row)[thread] = value;
      }
      simt::sync_block();
    }

    // Scores: a warp has 8 positions, a thread one of them and two of 8 heads.
    for (int i = 8 * warp + lane % 8; i - lane % 8 < n; i += 8 * kBlockWarps) {
      const float* key = reinterpret_cast<const float*>(keys + i * row);
      for (int g = lane / 8; g - lane / 8 < p.group; g += 8) {
        const int heads[2] = {g < p.group ? g : 0, g + 4 < p.group ? g + 4 : 0};
        simt::F32x4 score[2] = {};  // four chains each
        RL_UNROLL_BY(8)
        for (int at = 0; at < dim; at += 4) {
          const simt::F32x4 k = four_values(key + at);
          RL_UNROLL
          for (int h = 0; h < 2; ++h) {
            const simt::F32x4 x = four_values(q + heads[h] * q_row + at);
            RL_UNROLL
            for (int j = 0; j < 4; ++j) score[h].v[j] = simt::fma(k.v[j], x.v[j], score[h].v[j]);
          }
        }
        RL_UNROLL
        for (int h = 0; h < 2; ++h) {
          const simt::F32x4& chains = score[h];
          if (g + 4 * h < p.group)
            shared.weights[i][g + 4 * h] = (chains.v[0] + chains.v[1]) + (chains.v[2] + chains.v[3]);
        }
      }
    }
    simt::sync_block();  // the scores are there, the keys have been used
    if (first + kStage < cached_end)
      fetch_rows<kStage>(p.keys + cache, first + kStage, cached_end, cached_end, dim, row, keys);
    simt::copy_commit();

    RL_UNROLL
    for (int j = 0; j < kHeadsOfWarp; ++j) {
      const int g = warp + j * kBlockWarps;
      if (g >= p.group) continue;
      for (int tile = 0; tile * kTile < n; ++tile) {
        const int i = tile * kTile + lane;
        const float score = i < n ? shared.weights[i][g] : kNoScore, before = max[j];
        const float here = simt::warp_max(score);
        max[j] = before < here ? here : before;
        const float weight = simt::exp(score - max[j]), rescale = simt::exp(before - max[j]);
        total[j] = total[j] * rescale + simt::warp_sum(weight);
        if (i < n) shared.weights[i][g] = weight;
        if (lane == 0) shared.rescale[tile][g] = rescale;
      }
    }
    simt::copy_wait<1>();
    simt::sync_block();  // values and weights are there

    for (int tile = 0; tile * kTile < n && d < dim; ++tile) {
      RL_UNROLL
      for (int h = 0; h < kHalf; ++h) {
        if (h >= n_half) continue;
        const float rescale = shared.rescale[tile][first_head + h];
        sum[h][0] *= rescale;
        sum[h][1] *= rescale;
      }
      const int last = n - tile * kTile < kTile ? n : (tile + 1) * kTile;
      RL_UNROLL_BY(8)
      for (int i = tile * kTile; i < last; ++i) {
        const TwoValues value = two_values(reinterpret_cast<const float*>(values + i * row) + d);
        RL_UNROLL
        for (int word = 0; word < kHalf / 4; ++word) {
          if (4 * word >= n_half) continue;
          const simt::F32x4 weight = four_values(&shared.weights[i][first_head + 4 * word]);
          RL_UNROLL
          for (int j = 0; j < 4; ++j) {
            sum[4 * word + j][0] = simt::fma(weight.v[j], value.v[0], sum[4 * word + j][0]);
            sum[4 * word + j][1] = simt::fma(weight.v[j], value.v[1], sum[4 * word + j][1]);
          }
        }
      }
    }
    simt::sync_block();  // the values have been used
    if (first + kStage < cached_end)
      fetch_rows<kStage>(p.values + cache, first + kStage, cached_end, cached_end, dim, row, values);
    simt::copy_commit();
  }

  const auto place = [&](int g) { return static_cast<size_t>(kv_head * p.group + g) * max_parts + part; };
  RL_UNROLL
  for (int h = 0; h < kHalf; ++h) {
    if (h >= n_half || first_head + h >= p.group || d >= dim) continue;
    float* to = p.part_values + place(first_head + h) * dim + d;
    to[0] = sum[h][0];
    to[1] = sum[h][1];
  }
  RL_UNROLL
  for (int j = 0; j < kHeadsOfWarp; ++j) {
    const int g = warp + j * kBlockWarps;
    if (g >= p.group || lane != 0) continue;
    p.part_max[place(g)] = max[j];
    p.part_sum[place(g)] = total[j];
  }
}

RL_RUN void AttendCombine::run(const Params& p, Shared& shared) {
  static_assert(AttendSizes::kMostParts == kBlockThreads);
  const int head = static_cast<int>(simt::block_index().x), thread = simt::thread_index();
  const int lane = simt::lane_index(), warp = simt::warp_index();
  const int n_heads = static_cast<int>(simt::grid_size().x);
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;
  // What does not depend on the position is asked for together with it; parts behind the last one are not
  // used.
  const bool there = thread < p.head_dim, of_part = thread < p.max_parts;
  const size_t first = static_cast<size_t>(head) * p.max_parts;
  const float own_max = of_part ? p.part_max[first + thread] : 0,
              own_sum = of_part ? p.part_sum[first + thread] : 0;
  const float gate =
      there && p.gate != nullptr ? p.gate[static_cast<size_t>(head) * p.gate_head_stride + thread] : 0;
  const Split s = split_positions(p.step->position + 1, p.max_parts);

  // Each thread has the maximum of the parts up to its own, and those before it.
  const float own = thread < s.parts ? own_max : kNoScore;
  float max = own;
  RL_UNROLL
  for (int distance = 1; distance < simt::kWarpSize; distance *= 2) {
    const float other = simt::shuffle_up(max, distance);
    max = max < other ? other : max;  // itself where there is none
  }
  float before = simt::shuffle_up(max, 1);
  if (lane == 0) before = kNoScore;
  if (lane == simt::kWarpSize - 1) shared.max[warp] = max;
  simt::sync_block();
  for (int w = 0; w < warp; ++w) before = before < shared.max[w] ? shared.max[w] : before;
  shared.factors[thread] = thread < s.parts ? join(before, own) : PartFactors{1, 0};
  shared.sum[thread] = thread < s.parts ? own_sum : 0;
  simt::sync_block();

  float total = 0, sum = 0;
  const float* values = p.part_values + first * p.head_dim + thread;
  // Values under way together. More would be more code, which few multiprocessors have at hand: this kernel
  // has few blocks and comes seldom.
  constexpr int kBatch = 16;
  static_assert(AttendSizes::kMostParts % kBatch == 0);
  RL_UNROLL_BY(1)
  for (int base = 0; base < s.parts; base += kBatch) {
    float value[kBatch];
    RL_UNROLL
    for (int j = 0; j < kBatch; ++j)
      value[j] = there && base + j < s.parts ? values[static_cast<size_t>(base + j) * p.head_dim] : 0;
    RL_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      const PartFactors f = shared.factors[base + j];
      total = simt::fma(shared.sum[base + j], f.part, total * f.before);
      sum = simt::fma(value[j], f.part, sum * f.before);
    }
  }
  float out = sum / total;
  if (there && p.gate != nullptr) out *= sigmoid(gate);
  const int width = n_heads * p.head_dim, at = head * p.head_dim + thread;
  if (there) p.core[at] = out;
  QuantizedActivations(p.rounded, width).put(at, out, there);
}

RL_KERNEL(Attend<float>);
RL_KERNEL(AttendCombine);

}  // namespace redlite::gpu
