#pragma once

#include <limits>

#include "gpu/kernels/attend.h"
#include "gpu/kernels/block.h"

/// What attention of one token and of many have in common; for kernels only.
namespace redlite::gpu {

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();

RL_HOST_DEVICE inline Split split_positions(int n_positions, int max_parts) {
  int length = (n_positions + max_parts - 1) / max_parts;
  length = (length + AttendSizes::kTile - 1) / AttendSizes::kTile * AttendSizes::kTile;
  if (length < AttendSizes::kLeastLength) length = AttendSizes::kLeastLength;
  return {length, (n_positions + length - 1) / length};
}

/// A block's part of the positions of the token at `position`, whose own key and value are not in the cache
/// yet.
struct PartOfPositions {
  int begin, end;  ///< end <= begin: the block has none
  bool has_own;    ///< the last one is the token's own
  int cached_end;  ///< of those that are in the cache
};
RL_DEVICE inline PartOfPositions part_of_positions(int position, int part, int max_parts) {
  const int n = position + 1;
  const Split s = split_positions(n, max_parts);
  const int begin = part * s.length, end = begin + s.length < n ? begin + s.length : n;
  return {begin, end, end == n, end == n ? end - 1 : end};
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

RL_DEVICE inline simt::F32x4 four_values(const float* from) {
  return *reinterpret_cast<const simt::F32x4*>(from);
}

/// Brings rows [first, end) of dim values to shared memory, in the background, at most kRows of them; rows
/// from there to `zero_end` become zero.
template <int kRows, typename T>
RL_DEVICE inline void fetch_rows(const T* rows, int first, int end, int zero_end, int dim, int row_stride,
                                 std::byte* to) {
  const int bytes = dim * static_cast<int>(sizeof(T)), piece = bytes % 16 == 0 ? 16 : 4,
            pieces = bytes / piece;
  const int n = zero_end - first > kRows ? kRows : zero_end - first;
  for (int i = simt::thread_index(); i < n * pieces; i += kBlockThreads) {
    const int row = i / pieces, at = i % pieces * piece;
    std::byte* target = to + row * row_stride + at;
    const std::byte* source = reinterpret_cast<const std::byte*>(rows + static_cast<size_t>(first + row) *
                                                                            static_cast<size_t>(dim)) +
                              at;
    if (first + row >= end) {
      for (int word = 0; word < piece / 4; ++word) reinterpret_cast<uint32_t*>(target)[word] = 0;
    } else if (piece == 16) {
      simt::copy_async16(target, source);
    } else {
      simt::copy_async4(target, source);
    }
  }
}

/// RMS norm, weight, rotation and a factor for one head's x[dim], by a warp; `to` is shared memory.
RL_DEVICE inline void norm_and_rotate(const float* x, int dim, const float* weight, float eps,
                                      const float* rope, int rope_dims, float factor, float* to) {
  // Of a thread: all are asked for before the first is waited for.
  constexpr int kValues = AttendSizes::kMaxHeadDim / simt::kWarpSize, kTurns = kValues / 2;
  const int lane = simt::lane_index(), half = rope_dims / 2;
  const auto at = [&](int k) { return k * simt::kWarpSize + lane; };
  float v[kValues], w[kValues], cosine[kTurns], sine[kTurns];
  RL_UNROLL
  for (int k = 0; k < kValues; ++k) {
    v[k] = at(k) < dim ? x[at(k)] : 0;
    w[k] = at(k) < dim ? weight[at(k)] : 0;
  }
  RL_UNROLL
  for (int k = 0; k < kTurns; ++k) {
    cosine[k] = at(k) < half ? rope[at(k)] : 0;
    sine[k] = at(k) < half ? rope[half + at(k)] : 0;
  }
  float squares = 0;
  RL_UNROLL
  for (int k = 0; k < kValues; ++k)
    if (at(k) < dim) squares = simt::fma(v[k], v[k], squares);
  squares = simt::warp_sum(squares);
  const float scale = simt::reciprocal_sqrt(squares / static_cast<float>(dim) + eps);
  RL_UNROLL
  for (int k = 0; k < kValues; ++k)
    if (at(k) < dim) to[at(k)] = v[k] * scale * w[k];
  simt::sync_warp();
  RL_UNROLL
  for (int k = 0; k < kTurns; ++k) {
    if (at(k) >= half) continue;
    const float a = to[at(k)], b = to[half + at(k)];
    to[at(k)] = a * cosine[k] - b * sine[k];
    to[half + at(k)] = a * sine[k] + b * cosine[k];
  }
  simt::sync_warp();
  RL_UNROLL
  for (int k = 0; k < kValues; ++k)
    if (at(k) < dim) to[at(k)] *= factor;
}

}  // namespace redlite::gpu
