#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/route.h"
#include "gpu/kernels/slots.h"
#include "gpu/planes.h"

namespace redlite::gpu {

/// One of an expert's three matrices: how it lies in the file, and in a slot.
struct LoadFormat {
  PlaneFormat format;
  uint64_t plane[kMaxPlanes];  ///< where its planes start in the slot
  uint32_t blocks;
};

/// Where the experts of a layer lie in host memory, when all of them do.
struct ExpertSource {
  const std::byte* first[3];  ///< gate, up and down of expert 0
  uint64_t stride[3];         ///< from one expert to the next
};

/// Fills slots with experts as the file has them, from host memory that the device can read: the bytes come
/// over the bus into shared memory and leave it as planes. Grid: any number of blocks; few saturate the bus.
///
/// Which experts: those of `loads`, named by the host, or those that Route lists in `copies`. When the host
/// has had to step in, the last of its launches also says in which slots the token's experts are and takes
/// the early-out flag down.
struct LoadExperts {
  static constexpr const char* kName = "load_experts";
  static constexpr uint32_t kBlocks = 128;
  static constexpr uint32_t kBlocksBeside = 64;  ///< beside kernels that compute, on a cache of the device
  static constexpr int kTileBytes = 8 << 10;
  static constexpr int kMostLoads = 32;
  struct Load {
    const std::byte* from[3];  // gate, up, down
    int32_t slot;
  };
  struct Params {
    LoadFormat matrices[3];
    std::byte* slots;
    uint64_t slot_bytes;
    // The host's list ...
    int32_t n_loads;
    Load loads[kMostLoads];
    // ... or the GPU's own; nullptr: none
    const uint32_t* n_copies;
    const SlotCopy* copies;
    ExpertSource source;
    // How a stopped token goes on; nullptr: nothing was stopped
    uint32_t* stop;  // the early-out flag
    int32_t* slots_of_token;
    int32_t n_used;
    int32_t resume[Route::kMaxUsed + 1];  // what becomes slots_of_token[n_used]
  };
  struct Shared;
  static RL_HOST_DEVICE uint32_t tile_blocks(const PlaneFormat& format) {
    return static_cast<uint32_t>(kTileBytes / (16 * format.block_bytes) * 16);
  }
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
