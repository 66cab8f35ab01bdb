#pragma once

#include "gpu/kernel.h"
#include "gpu/planes.h"

namespace redlite::gpu {

/// GGUF blocks to planes (planes.h): `from` may lie in host memory and needs no alignment, but is read with
/// 16-byte loads where it has it. Threads: 256; any grid.
struct Repack {
  static constexpr const char* kName = "repack";
  struct Params {
    PlaneFormat format;
    const std::byte* from;  ///< blocks * format.block_bytes
    std::byte* to;
    uint64_t plane[kMaxPlanes];  ///< PlaneMatrix::plane of the result
    uint32_t blocks;
    const uint32_t* skip;  ///< the early-out flag; or nullptr
  };
  struct Shared;
  static constexpr int kTileBytes = 32 << 10;
  /// GGUF blocks that a thread block handles at a time: a multiple of 16, so that a tile begins at a multiple
  /// of 16 in every plane.
  static RL_HOST_DEVICE int tile_blocks(const PlaneFormat& format) {
    return kTileBytes / (16 * format.block_bytes) * 16;
  }
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
