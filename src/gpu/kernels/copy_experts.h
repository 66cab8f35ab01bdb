#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/slots.h"

namespace redlite::gpu {

/// Copies the experts a layer misses from host memory to their slots. Grid: few blocks, which the way over
/// the bus does not need more of (kBlocks).
struct CopyExperts {
  static constexpr const char* kName = "copy_experts";
  static constexpr uint32_t kBlocks = 16;
  struct Params {
    const uint32_t* n_copies;
    const SlotCopy* copies;
    const std::byte* from;  // host memory: expert e at e * slot_bytes
    std::byte* slots;
    uint64_t slot_bytes;             // a multiple of 16
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
