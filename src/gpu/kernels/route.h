#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/slots.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// The experts' input and the choice of experts, for each token: RMS norm, router logits and the shared
/// expert's gate, in the order that model/router.h defines; the token's last block to finish selects. What
/// share each gets is ExpertsDown's matter, which has the time for it. Grid: {blocks(n_rows), n_tokens}.
///
/// With predictions (of one token), further blocks run the next layers' routers on the same input, and the
/// last of each looks up what its router selects. Grid: {blocks(n_rows) + layers * blocks(n_experts), 1}.
struct Route {
  static constexpr const char* kName = "route";
  static constexpr int kRows = 4;    ///< of the router, for each block; they wait in shared memory
  static constexpr int kGroup = 64;  ///< values that lie together there
  static constexpr int kMaxExperts = 1024;
  static constexpr int kMaxUsed = 31;
  /// Layers that are predicted: with an 80B's routers an H200 has room for the blocks of four at a time.
  static constexpr int kMostAhead = 3;
  struct Params {
    const float* x;       // [n_tokens][n]
    const float* weight;  // [n], of the norm
    const float* router;  // [n_experts (+ 1: the shared expert's gate)][n]
    float* input;         // [n_tokens][n], the norm: what the experts get
    std::byte* rounded;   // [n_tokens][rounded_bytes(n)], the same
    float* logits;        // [n_tokens][n_rows]
    int32_t* ids;         // [n_tokens][n_used], best first
    float* scores;        // [n_tokens][n_used (+ 1: the shared expert's)]: logits
    int32_t* slots;       // [n_tokens][n_used]: where the experts are; nullptr: expert e in slot e
    SlotTable table;      // the GPU's own; used where table.slot_of is set; one token at a time. With no more
                          // than table.hits all experts are there, and their uses are counted
    HostSlots host;       // or the host's, where host.record is set
    const Step* step;
    uint32_t* tickets;  // [n_tokens], zero; zero again afterwards
    struct Next {
      const float* router;    // [n_experts][n]
      float* logits;          // [n_experts]
      SlotTable table;        // as above: copies are listed
      HostSlots host;         // or the host is told
      uint32_t* ticket;       // zero; zero again afterwards
    } next[kMostAhead] = {};  // of the layer behind this one, the one behind that, ...
    float eps;
    int n;  // a multiple of 4
    int n_experts, n_used;
    int n_rows;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  RL_HOST_DEVICE static uint32_t blocks(int n_rows) {
    return static_cast<uint32_t>((n_rows + kRows - 1) / kRows);
  }
  RL_HOST_DEVICE static int padded(int n) { return (n + kGroup - 1) / kGroup * kGroup; }
  static size_t dynamic_shared(int n) { return sizeof(float) * (kRows + 1) * static_cast<size_t>(padded(n)); }
};

}  // namespace redlite::gpu
