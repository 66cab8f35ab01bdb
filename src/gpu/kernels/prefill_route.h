#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/prefill_tiles.h"

namespace redlite::gpu {

/// The choice of experts from the router's logits, by the rules of model/router.h. Grid: {n_tokens}.
struct PrefillSelect {
  static constexpr const char* kName = "prefill_select";
  struct Params {
    const float* logits;  // [n_tokens][n_rows]: experts, then the shared one's gate
    int32_t* ids;         // [n_tokens][n_used], best first
    float* shares;        // [n_tokens][n_used (+ 1: of the shared expert)]
    float scale;          // of the experts' shares
    int n_experts, n_used;
    int n_rows;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
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
