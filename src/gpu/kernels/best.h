#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// Which of n logits model::best_token() chooses, so that one word goes to the host instead of all of them.
/// Blocks share out the logits; the last one to finish tells the host. Grid: {blocks(n)}.
struct Best {
  static constexpr const char* kName = "best";
  static constexpr int kLogitsOfBlock = 16 * static_cast<int>(kStepThreads);
  struct Params {
    const float* logits;  // [n]
    uint64_t* best;       // zero; zero again afterwards
    uint32_t* ticket;     // zero; zero again afterwards
    uint64_t* host;       // in memory that both see: best_of() says what it means
    int n;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static uint32_t blocks(int n) { return static_cast<uint32_t>((n + kLogitsOfBlock - 1) / kLogitsOfBlock); }
};

/// The token that Best told; throws as model::best_token() does.
int32_t best_of(uint64_t told);

}  // namespace redlite::gpu
