#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/prefill_tiles.h"

namespace redlite::gpu {

/// The choice of experts from the router's logits, by the rules of model/router.h, a warp for each token.
/// Grid: {blocks()}.
struct PrefillSelect {
  static constexpr const char* kName = "prefill_select";
  struct Params {
    const float* logits;  // [n_tokens][n_rows]: experts, then the shared one's gate
    int32_t* ids;         // [n_tokens][n_used], best first
    float* shares;        // [n_tokens][n_used (+ 1: of the shared expert)]
    float scale;          // of the experts' shares
    int n_tokens;
    int n_experts, n_used;
    int n_rows;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static constexpr uint32_t kTokens = 8;  ///< of a block
  static uint32_t blocks(int n_tokens) { return (static_cast<uint32_t>(n_tokens) + kTokens - 1) / kTokens; }
  static size_t dynamic_shared(int n_experts) {
    return sizeof(uint64_t) * kTokens * static_cast<size_t>(n_experts);
  }
};

/// Sorts a chunk's selections by expert and cuts them into tiles. Within an expert their order is that of no
/// rule; nothing depends on it. Grid: {1}.
struct PrefillSort {
  static constexpr const char* kName = "prefill_sort";
  static constexpr int kThreads = 1024;
  static constexpr int kMaxExperts = 1024;
  struct Params {
    const int32_t* ids;   // [n_tokens][n_used]
    int32_t* token;       // [n_tokens * n_used], of each place of the sorted list
    int32_t* selection;   // [n_tokens * n_used], of each place: token * n_used + number in the router's order
    ExpertTile* tiles;    // [most_tiles()]
    int32_t* first_tile;  // [n_experts + 1]
    int n_tokens, n_used, n_experts;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  /// Tiles there can be of n selections of n_experts.
  static int most_tiles(int n, int n_experts) { return n / kTileTokens + (n < n_experts ? n : n_experts); }
};

}  // namespace redlite::gpu
