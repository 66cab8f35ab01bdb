#pragma once

#include "gpu/kernel.h"

namespace redlite::gpu {

/// Copies experts that are in planes already from places of one memory to places of another, both as far
/// apart as slots are. Where the others are slots of a table, it says there who is in them now. Grid: any
/// number of blocks.
struct CopyExperts {
  static constexpr const char* kName = "copy_experts";
  static constexpr uint32_t kPieceBytes = 16 << 10;  ///< of an expert, for a block at a time
  static constexpr int kMostCopies = 256;
  struct Copy {
    int32_t from, to;
  };
  struct Params {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    uint64_t slot_bytes = 0;  // a multiple of 16
    int32_t n_copies = 0;
    Copy copies[kMostCopies] = {};
    int32_t* slot_of = nullptr;    // as in SlotTable; nullptr: `to` are not the slots of a table
    int32_t* expert_of = nullptr;  // likewise
    int32_t first_expert = 0;      // which is at place 0 of `from`
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
