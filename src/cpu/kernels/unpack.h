#pragma once

#include <cstddef>
#include <cstring>

#include "cpu/kernels/layout.h"
#include "quant/blocks.h"

namespace redlite::cpu {

/// 256 weights of a row in the order of ActivationBlock.
struct alignas(64) WeightBlock {
  int8_t q[4][kLanes][4];
  float scale[kLanes];
  float min[kLanes];
};

/// Puts the 16 values of each lane where ActivationBlock has them.
template <int N>
inline void place_lanes(const int8_t* q, int first_lane, WeightBlock& out) {
  for (int lane = 0; lane < N / 16; ++lane) {
    for (int j = 0; j < 4; ++j) std::memcpy(out.q[j][first_lane + lane], q + 16 * lane + 4 * j, 4);
  }
}

/// Unpacks up to 256 values of a row, from `src` on; what is beyond `values` becomes zero.
template <typename Block>
inline void unpack_weights(const std::byte* src, int values, WeightBlock& out) {
  constexpr int kGroups = Block::kValues / 16;
  if (values < kBlockValues) std::memset(&out, 0, sizeof out);
  quant::Unpacked<Block::kValues> unpacked;
  for (int at = 0; at < values && at < kBlockValues; at += Block::kValues, src += sizeof(Block)) {
    Block block;
    std::memcpy(&block, src, sizeof block);
    quant::unpack(block, unpacked);
    place_lanes<Block::kValues>(unpacked.q, at / 16, out);
    std::memcpy(out.scale + at / 16, unpacked.scale, kGroups * sizeof(float));
    std::memcpy(out.min + at / 16, unpacked.min, kGroups * sizeof(float));
  }
}

}  // namespace redlite::cpu
