#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// Where the parts of a V head of a DeltaNet layer lie in what is projected from one token.
struct DeltaHead {
  int32_t k_head;
  int32_t q, k, v, z, beta, alpha;
  int32_t first_of_k_head;  ///< 1 for one V head of each K head
};

/// Gated DeltaNet between its projections, for consecutive tokens: convolution and SiLU, L2 norm of q and k,
/// update of the recurrent state, what it answers, times the norm's weight and SiLU(z). The columns of a
/// head's state do not depend on each other: a block has kColumns of them, in registers. The RMS norm of the
/// answer does: its squares are left for the product that follows. Grid: {n_v_heads, slices}.
struct DeltaStep {
  static constexpr const char* kName = "delta_step";
  static constexpr int kThreads = 256, kBlocksOfMultiprocessor = 3;
  static constexpr int kColumns = 32;
  static constexpr int kMaxDim = 128;
  static constexpr int kMaxTaps = 4;
  struct Params {
    const float* proj;       // [n_tokens][proj_stride]
    const DeltaHead* heads;  // [n_v_heads]
    const float* conv;       // [taps][conv_dim]: oldest input first
    const float* dt;         // [n_v_heads]
    const float* a;          // [n_v_heads]
    float* history;          // [2][taps - 1][conv_dim]: the inputs before, channels in the order q, k, v
    float* state;            // [n_v_heads][dim][dim], rows along k
    const float* weight;     // [dim], of the norm
    float* core;             // [n_tokens][n_v_heads][dim]
    std::byte* rounded;      // [n_tokens][rounded_bytes(n_v_heads * dim)]; nullptr: nobody wants core so
    float* squares;          // [n_tokens][n_v_heads][slices()]: of the answer's parts
    const Step* step;
    int proj_stride;
    int n_tokens;
    int taps;
    int conv_dim, key_dim;
    int dim;  // of a head, at most kMaxDim
    float eps;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static int slices(int dim) { return (dim + kColumns - 1) / kColumns; }
  static Dim3 grid(int n_v_heads, int dim) {
    return {static_cast<uint32_t>(n_v_heads), static_cast<uint32_t>(slices(dim))};
  }
};

}  // namespace redlite::gpu
