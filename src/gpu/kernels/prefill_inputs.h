#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/prefill_product.h"

namespace redlite::gpu {

/// What the input of products with many tokens is made of; row t is token t's.
struct PrefillSource {
  enum class Kind : uint8_t {
    Plain,      ///< x
    Norm,       ///< the RMS norm of x, times weight
    GatedNorm,  ///< the RMS norm of each head of x, times weight and SiLU(z)
  };
  Kind kind = Kind::Plain;
  const float* x = nullptr;  ///< [n_tokens][n]
  int n = 0;
  const float* weight = nullptr;  ///< Norm: [n]; GatedNorm: [dim]
  float eps = 0;
  int dim = 0;                  ///< GatedNorm: of a head
  const float* proj = nullptr;  ///< GatedNorm: [n_tokens][proj_stride], z of a head at heads[head].z
  const struct DeltaHead* heads = nullptr;  ///< GatedNorm
  int proj_stride = 0;
};

/// Makes the input of products with many tokens, as floats and rounded to 8 bits, as it comes about for one
/// token: GatedNorm is rounded without the norm, by which scales and sums are multiplied then. Grid:
/// {n_tokens}.
struct PrefillInput {
  static constexpr const char* kName = "prefill_input";
  static constexpr int kMaxHeads = 512;
  struct Params {
    PrefillSource input;
    float* floats;  // [n_tokens][input.n]; nullptr: nobody needs them
    QuantizedRows rounded;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static size_t dynamic_shared(int n) { return sizeof(float) * static_cast<size_t>(n); }
};

/// SiLU(gate) . up of many rows, the input of `down`: of all rows, or of the places of some experts' tiles.
/// Grid: any number of blocks.
struct PrefillHidden {
  static constexpr const char* kName = "prefill_hidden";
  struct Params {
    const float* gate_up;  // [rows][gate ff, up ff]
    float* floats;         // [rows][ff]
    QuantizedRows rounded;
    TokenTiles tokens;
    int ff;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

/// residual += the sum, in the router's order, of share * part, the shared expert's last. Grid: {n_tokens}.
struct PrefillSum {
  static constexpr const char* kName = "prefill_sum";
  struct Params {
    const float* parts;         // [n_tokens][n_used][n]
    const float* shared_parts;  // [n_tokens][n]; nullptr: there is no shared expert
    const float* shares;        // [n_tokens][n_used (+ 1)]
    float* residual;            // [n_tokens][n]
    float* shown;               // [n_tokens][n], what is added, for a tap; nullptr: nobody looks
    int n_used;
    int n;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
