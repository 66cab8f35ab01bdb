#pragma once

#include <limits>

#include "gpu/kernels/attend.h"
#include "gpu/kernels/block.h"

/// What attention of one token and of many have in common; for kernels only.
namespace redlite::gpu {

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();

RL_HOST_DEVICE inline Split split_positions(int n_positions, int max_parts) {
  int length = (n_positions + max_parts - 1) / max_parts;
  length = (length + Attend::kTile - 1) / Attend::kTile * Attend::kTile;
  if (length < Attend::kLeastLength) length = Attend::kLeastLength;
  return {length, (n_positions + length - 1) / length};
}

/// The parts of a token's positions put together, one after another in their order: with
///     max, total, sum    of the parts so far (at first kNoScore, 0, 0)
/// a part's values are added by
///     const PartFactors f = join(max, part_max);   // max becomes the greater one
///     total = fma(part_sum, f.part, total * f.before);
///     sum = fma(part_value, f.part, sum * f.before);    // for every dimension
struct PartFactors {
  float before, part;
};
RL_DEVICE inline PartFactors join(float& max, float part_max) {
  const float before = max;
  max = before < part_max ? part_max : before;
  return {simt::exp(before - max), simt::exp(part_max - max)};
}

/// RMS norm, weight, rotation and a factor for one head's x[dim], by a warp; `to` is shared memory.
RL_DEVICE inline void norm_and_rotate(const float* x, int dim, const float* weight, float eps,
                                      const float* rope, int rope_dims, float factor, float* to) {
  const int lane = simt::lane_index();
  float squares = 0;
  for (int i = lane; i < dim; i += simt::kWarpSize) squares = simt::fma(x[i], x[i], squares);
  squares = simt::warp_sum(squares);
  const float scale = simt::reciprocal_sqrt(squares / static_cast<float>(dim) + eps);
  for (int i = lane; i < dim; i += simt::kWarpSize) to[i] = x[i] * scale * weight[i];
  simt::sync_warp();
  const int half = rope_dims / 2;
  for (int i = lane; i < half; i += simt::kWarpSize) {
    const float a = to[i], b = to[half + i];
    to[i] = a * rope[i] - b * rope[half + i];
    to[half + i] = a * rope[half + i] + b * rope[i];
  }
  simt::sync_warp();
  for (int i = lane; i < dim; i += simt::kWarpSize) to[i] *= factor;
}

}  // namespace redlite::gpu
