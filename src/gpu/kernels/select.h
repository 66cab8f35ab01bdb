#pragma once

#include <cstdint>

#include "gpu/kernels/block.h"
#include "gpu/kernels/route.h"
#include "gpu/simt.h"
#include "model/router.h"

/// The choice of experts by the rules of model/router.h; for kernels only.
namespace redlite::gpu {

/// A block's memory for a selection, and its outcome: the selected experts, best first, and their logits.
struct Selection {
  alignas(16) uint32_t best[simt::kWarpSize];  ///< of each group of threads
  uint32_t n_candidates;
  uint64_t candidates[Route::kMaxExperts];
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

/// The n_used best experts, at most 31, by all threads of a block: what one warp does alone takes thousands
/// of cycles.
RL_DEVICE inline void select(const float* logits, int n_experts, int n_used, Selection& to) {
  constexpr int kOfThread = Route::kMaxExperts / kBlockThreads;
  static_assert(kBlockThreads / 8 == simt::kWarpSize);
  const int thread = simt::thread_index(), lane = simt::lane_index();
  float logit[kOfThread];
  RL_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    const int expert = i * kBlockThreads + thread;
    logit[i] = expert < n_experts ? load_fresh(&logits[expert]) : 0;
  }
  uint32_t mine[kOfThread], best = 0;
  RL_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    mine[i] = i * kBlockThreads + thread < n_experts ? expert_order(logit[i]) : 0;
    best = best < mine[i] ? mine[i] : best;
  }
  best = simt::warp_max<8>(best);
  if (lane % 8 == 0) to.best[thread / 8] = best;
  if (thread == 0) to.n_candidates = 0;
  simt::sync_block();

  // The n_used-th of the groups' best ones: as many experts are at least as good, and not many more.
  const uint32_t own = to.best[lane];
  int better = 0;
  RL_UNROLL
  for (int i = 0; i < simt::kWarpSize; i += 4) {
    const auto four = *reinterpret_cast<const simt::U32x4*>(&to.best[i]);
    RL_UNROLL
    for (int j = 0; j < 4; ++j) better += four.v[j] > own ? 1 : 0;
  }
  const uint32_t least = simt::warp_min(better < n_used ? own : 0xffffffffu);
  RL_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    if (mine[i] != 0 && mine[i] >= least)
      to.candidates[simt::atomic_add(&to.n_candidates, 1u)] = expert_key(mine[i], i * kBlockThreads + thread);
  }
  simt::sync_block();

  const int n = static_cast<int>(to.n_candidates);
  for (int i = thread; i < n; i += kBlockThreads) {
    const uint64_t candidate = to.candidates[i];
    int place = 0;
    RL_UNROLL_BY(4)
    for (int j = 0; j < n; ++j) place += to.candidates[j] > candidate ? 1 : 0;
    if (place >= n_used) continue;
    to.ids[place] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(candidate));
    to.logits[place] = expert_logit(static_cast<uint32_t>(candidate >> 32));
  }
  simt::sync_block();
}

/// Lane i's share, of the i-th best expert, whose logit it gives; by a warp.
RL_DEVICE inline float share_of(float logit, int n_used, float scale) {
  const float best = simt::shuffle(logit, 0);
  const float e = simt::lane_index() < n_used ? model::router_exp(logit - best) : 0;
  float sum = 0;
  RL_UNROLL_BY(4)
  for (int i = 0; i < n_used; ++i) sum += simt::shuffle(e, i);
  return e / sum * scale;
}

}  // namespace redlite::gpu
