#pragma once

#include "gpu/codebooks.h"
#include "gpu/kernel.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/products.h"

namespace redlite::gpu {

/// An expert's three matrices.
struct ExpertMatrices {
  DeviceMatrix gate, up;  ///< ff x n
  DeviceMatrix down;      ///< n x ff
};

/// The experts of a layer. The routed ones lie in slots of slot_bytes each; `slot` is the one at number 0.
struct LayerExperts {
  ExpertMatrices slot;
  uint64_t slot_bytes;
  ExpertMatrices shared;  ///< used when has_shared
  int n_used;
  bool has_shared;

  RL_HOST_DEVICE int n_all() const { return n_used + (has_shared ? 1 : 0); }
};

/// hidden = SiLU(gate * input) . (up * input), for each token, of its selected experts and the shared one, as
/// floats and rounded to 8 bits. Grid: {blocks(), n_all, n_tokens}.
struct ExpertsGateUp {
  static constexpr const char* kName = "experts_gate_up";
  using PartOf = Products;
  static constexpr int kRows = 16;  ///< of a block: a strip of what is rounded
  struct Params {
    static constexpr auto kWhat = Products::What::gate_up;
    LayerExperts experts;
    const float* input;         // [n_tokens][n]
    const std::byte* rounded;   // [n_tokens][rounded_bytes(n)]
    const int32_t* slots;       // [n_tokens][n_used]
    float* hidden;              // [n_tokens][n_all][hidden_stride]
    std::byte* hidden_rounded;  // [n_tokens][n_all][rounded_bytes(hidden_stride)]
    const Codebooks* codebooks;
    int hidden_stride;
    int n;
    ProductLayout layout;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  static uint32_t blocks(int rows) { return static_cast<uint32_t>((rows + kRows - 1) / kRows); }
  static ProductLayout layout(const LayerExperts& experts, int n);
};

/// residual += the sum, in the router's order, of share * (down * hidden), the shared expert last. The routed
/// experts' shares are the softmax of their scores (model/router.h), times scale; the shared one's is a
/// sigmoid. Grid: {blocks(), n_tokens}.
struct ExpertsDown {
  static constexpr const char* kName = "experts_down";
  using PartOf = Products;
  static constexpr int kRows = 8;         ///< of a block
  static constexpr int kMaxExperts = 32;  ///< n_all
  struct Params {
    static constexpr auto kWhat = Products::What::down;
    LayerExperts experts;
    const float* hidden;              // [n_tokens][n_all][hidden_stride]
    const std::byte* hidden_rounded;  // [n_tokens][n_all][rounded_bytes(hidden_stride)]
    const int32_t* slots;             // [n_tokens][n_used]
    const float* scores;              // [n_tokens][n_all], Route's; not by the kernel in front
    float* residual;                  // [n_tokens][n]
    float* shown;                     // [n_tokens][n], what is added, for a tap; nullptr: nobody looks
    const Codebooks* codebooks;
    float scale;  // of the routed experts' shares
    int hidden_stride;
    int n;
    ProductLayout layout;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  static uint32_t blocks(int rows) { return static_cast<uint32_t>((rows + kRows - 1) / kRows); }
  static ProductLayout layout(const LayerExperts& experts, int hidden_stride);
};

}  // namespace redlite::gpu
