#pragma once

#include <cstdint>

#include "gpu/simt.h"

/// Logits as keys that order experts; for kernels only.
namespace redlite::gpu {

/// Orders logits as model::select_experts() does: a greater key is a better expert. NaN comes last, of equal
/// logits (0 and -0 are) the lower id wins. No key is 0.
RL_DEVICE inline uint64_t expert_key(float logit, int expert) {
  const uint32_t bits = simt::bits_of_float(logit + 0.0f);
  uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (!(logit == logit)) order = 0;
  return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}
RL_DEVICE inline int32_t expert_of_key(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

/// The best of the experts e % 32 == lane whose key is below `below`; 0: there is none.
RL_DEVICE inline uint64_t best_of_lane(const float* logits, int n_experts, uint64_t below) {
  uint64_t best = 0;
  for (int e = simt::lane_index(); e < n_experts; e += simt::kWarpSize) {
    const uint64_t k = expert_key(logits[e], e);
    if (k < below && k > best) best = k;
  }
  return best;
}

}  // namespace redlite::gpu
