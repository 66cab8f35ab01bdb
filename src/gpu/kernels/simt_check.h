#pragma once

#include <cstdint>

#include "gpu/kernel.h"

namespace redlite::gpu {

/// For the self-test only: every operation of simt.h that has a meaning of its own, on one block of 64
/// threads.
struct SimtCheck {
  static constexpr const char* kName = "simt_check";
  static constexpr int kThreads = 64;
  static constexpr int kResults = 53;
  struct Params {
    const uint32_t* in;  ///< [64][12]: a[4], b[2], and six words more
    int32_t* out;        ///< [64][kResults]: simt_check.cc says which
    float* out_f;        ///< [64][8]: products of binary16 and bfloat16 matrices
    uint32_t* counters;  ///< [4]: targets of atomics, given as {0, 0, 0, 0xffffffff}
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
