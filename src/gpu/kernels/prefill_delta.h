#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/delta_step.h"

namespace redlite::gpu {

/// What DeltaStep does for many tokens, in two kernels and to the same bits: first all that tokens do not
/// wait for each other with, then the recurrence.
///
/// Rows of a state are shared out as there: group g of kGroups has rows g, g + kGroups, ...; q and k lie in
/// the groups' order, [kGroups][kRows], rows beyond `dim` are zero.
struct DeltaLayout {
  static constexpr int kGroups = 8;
  static constexpr int kRows = DeltaStep::kMaxDim / kGroups;  ///< of a group
  static constexpr int kHead = DeltaStep::kMaxDim;            ///< floats of a head's q or k
};

/// Convolution and SiLU, the lengths of q and k, decay and beta; the histories advance. A warp has one V head
/// and kTokens tokens. Grid: {token_blocks(), head_blocks()}.
struct PrefillConvolve {
  static constexpr const char* kName = "prefill_convolve";
  static constexpr int kThreads = 256;
  static constexpr int kBlocksOfMultiprocessor = 3;  // which makes nvcc use 56 registers, and spill none
  static constexpr int kTokens = 4;
  static constexpr int kMaxTaps = DeltaStep::kMaxTaps;
  struct Params {
    const float* proj;       // [n_tokens][proj_stride]
    const DeltaHead* heads;  // [n_v_heads]
    const float* conv;       // [taps][conv_dim]: oldest input first
    const float* dt;         // [n_v_heads]
    const float* a;          // [n_v_heads]
    float* history;          // [2][taps - 1][conv_dim], as DeltaStep has it
    float* q;                // [n_tokens][n_k_heads][kHead]
    float* k;                // [n_tokens][n_k_heads][kHead]
    float* v;                // [n_tokens][n_v_heads][dim]
    float* lengths;          // [n_tokens][n_k_heads][2]: factors of q and k
    float* decays;           // [n_tokens][n_v_heads][2]: decay, beta
    uint32_t flip;           // Step::flip
    int proj_stride;
    int n_tokens;
    int n_v_heads, n_k_heads;
    int taps;
    int conv_dim, key_dim;
    int dim;  // of a head, at most DeltaStep::kMaxDim
    float eps;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static uint32_t token_blocks(int n) { return static_cast<uint32_t>((n + kTokens - 1) / kTokens); }
  static uint32_t head_blocks(int n_v_heads) { return static_cast<uint32_t>((n_v_heads + 7) / 8); }
};

/// The recurrence. A block has kColumns columns of a V head's state in registers, a thread kRows rows of two
/// of them; what tokens bring comes through shared memory, kStage tokens at a time. Grid: {n_v_heads,
/// slices()}.
struct PrefillScan {
  static constexpr const char* kName = "prefill_scan";
  static constexpr int kThreads = 128;
  static constexpr int kColumnsOfThread = 2;
  static constexpr int kColumns = kColumnsOfThread * kThreads / DeltaLayout::kGroups;
  static constexpr int kStage = 16;
  struct Params {
    const DeltaHead* heads;  // [n_v_heads]
    const float* q;          // what PrefillConvolve made
    const float* k;
    const float* v;
    const float* lengths;
    const float* decays;
    float* state;  // [n_v_heads][dim][dim], rows along k
    float* core;   // [n_tokens][n_v_heads][dim]
    int n_tokens;
    int n_v_heads, n_k_heads;
    int dim;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static uint32_t slices(int dim) { return static_cast<uint32_t>((dim + kColumns - 1) / kColumns); }
};

}  // namespace redlite::gpu
