#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/device_matrix.h"

namespace redlite::gpu {

/// What a projection multiplies; row t is token t's.
struct ProjectInput {
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
  float* shown = nullptr;       ///< Norm: [n_tokens][n], the norm for a tap; nullptr: nobody looks
  int dim = 0;                  ///< GatedNorm: of a head
  const float* proj = nullptr;  ///< GatedNorm: [n_tokens][proj_stride], z of a head at heads[head].z
  const struct DeltaHead* heads = nullptr;  ///< GatedNorm
  int proj_stride = 0;
};

/// One of the matrices of a launch; its rows go to y[out], y[out + 1], ...
struct ProjectPart {
  DeviceMatrix matrix;
  int first_tile;  ///< number of the first of its tiles of rows
  int out;
};

inline constexpr int kMaxProjectParts = 4;

/// y = matrices times input, for every token; or residual += that. Grid: {blocks, n_tokens}; the blocks share
/// out tiles of rows, and a tile's rows have one matrix. Every block makes the input anew, so that it costs
/// no launch of its own.
struct Project {
  static constexpr const char* kName = "project";
  static constexpr int kMaxTileRows = 32;
  struct Params {
    ProjectInput input;
    ProjectPart parts[kMaxProjectParts];
    int n_parts;
    int n_tiles;
    int tile_rows;    // a multiple of the warps of a block
    float* y;         // [n_tokens][y_stride]; may be nullptr where there is a residual
    float* residual;  // [n_tokens][y_stride]; nullptr: none
    int y_stride;
    const Codebooks* codebooks;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
