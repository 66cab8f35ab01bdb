#pragma once

#include <cstdint>

#include "gpu/kernels/route.h"
#include "gpu/simt.h"
#include "model/router.h"

/// The choice of experts by the rules of model/router.h; for kernels only.
namespace redlite::gpu {

/// Experts of each thread of the warp that selects.
inline constexpr int kExpertsOfLane = Route::kMaxExperts / simt::kWarpSize;

/// The selected experts, best first, and their logits; in shared memory.
struct Selection {
  int32_t ids[simt::kWarpSize];
  float logits[simt::kWarpSize];
};

/// Orders logits as select_experts() and best_token() do: a greater word is better. NaN comes last; 0 and -0
/// are equal. Never 0.
RL_DEVICE inline uint32_t expert_order(float logit) {
  const uint32_t bits = simt::bits_of_float(logit + 0.0f);
  if (!(logit == logit)) return 1;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
/// The logit it came from; -0 has become 0.
RL_DEVICE inline float expert_logit(uint32_t order) {
  if (order == 1) return simt::float_of_bits(0x7fffffffu);
  return simt::float_of_bits((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}
/// Of equal logits the lower id is better.
RL_DEVICE inline uint64_t expert_key(uint32_t order, int expert) {
  return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

/// What another block of this launch wrote.
RL_DEVICE inline float load_fresh(const float* address) {
  return simt::float_of_bits(simt::load_relaxed(reinterpret_cast<const uint32_t*>(address)));
}

/// The n_used best experts, at most 31; by one warp. `candidates` [n_experts] is shared memory.
RL_DEVICE inline void select(const float* logits, int n_experts, int n_used, uint64_t* candidates,
                             Selection& to) {
  const int lane = simt::lane_index();
  uint32_t mine[kExpertsOfLane], best = 0;
  RL_UNROLL
  for (int i = 0; i < kExpertsOfLane; ++i) {
    const int expert = i * simt::kWarpSize + lane;
    mine[i] = expert < n_experts ? expert_order(load_fresh(&logits[expert])) : 0;
  }
  RL_UNROLL
  for (int i = 0; i < kExpertsOfLane; ++i) best = best < mine[i] ? mine[i] : best;
  // The n_used-th of the threads' best ones: as many experts are at least as good, and not many more.
  int rank = 0;
  RL_UNROLL
  for (int other = 0; other < simt::kWarpSize; ++other) {
    const uint32_t its = simt::shuffle(best, other);
    rank += its > best || (its == best && other < lane) ? 1 : 0;
  }
  const uint32_t least = simt::shuffle(best, simt::lowest_bit(simt::ballot(rank == n_used - 1)));
  int n = 0;
  RL_UNROLL
  for (int i = 0; i < kExpertsOfLane; ++i) {
    if (i * simt::kWarpSize >= n_experts) continue;
    const bool is_one = mine[i] >= least && mine[i] != 0;
    const uint32_t ones = simt::ballot(is_one);
    if (is_one)
      candidates[n + simt::count_bits(ones & ((1u << lane) - 1))] =
          expert_key(mine[i], i * simt::kWarpSize + lane);
    n += simt::count_bits(ones);
  }
  simt::sync_warp();
  for (int i = lane; i < n; i += simt::kWarpSize) {
    const uint64_t candidate = candidates[i];
    int place = 0;
    for (int j = 0; j < n; ++j) place += candidates[j] > candidate ? 1 : 0;
    if (place >= n_used) continue;
    to.ids[place] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(candidate));
    to.logits[place] = expert_logit(static_cast<uint32_t>(candidate >> 32));
  }
  simt::sync_warp();
}

/// Lane i's share, of the i-th best expert; by the warp that has selected.
RL_DEVICE inline float share_of(const Selection& selection, int n_used, float scale) {
  const int lane = simt::lane_index();
  const float e = lane < n_used ? model::router_exp(selection.logits[lane] - selection.logits[0]) : 0;
  float sum = 0;
  for (int i = 0; i < n_used; ++i) sum += simt::shuffle(e, i);
  return e / sum * scale;
}

}  // namespace redlite::gpu
