#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// Begins a forward pass: brings the tokens' embeddings and the step's record from the host, and computes the
/// rotations of the tokens' positions. A block for each token.
struct Embed {
  static constexpr const char* kName = "embed";
  struct Params {
    const Step* host_step;
    const float* host_x;  // [n_tokens][n_embd]
    Step* step;
    float* x;                        // [n_tokens][n_embd]
    float* rope;                     // [n_tokens][rope_dims]: cosines, then sines
    const double* rope_frequencies;  // [rope_dims / 2], in turns for each position
    uint32_t* stop;                  // the early-out flag, taken down; nullptr: none
    int n_embd;
    int rope_dims;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
