#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/prefill_product.h"
#include "gpu/kernels/project.h"

namespace redlite::gpu {

/// Makes the input of products with many tokens: what `project` makes anew in each of its blocks for one
/// token (ProjectInput), as floats and rounded to 8 bits. Grid: {n_tokens}.
struct PrefillInput {
  static constexpr const char* kName = "prefill_input";
  struct Params {
    ProjectInput input;
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
