#pragma once

#include <span>

#include "gpu/codebooks.h"
#include "gpu/kernel.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/products.h"

namespace redlite::gpu {

/// What a projection multiplies; row t is token t's.
struct ProjectInput {
  const float* x = nullptr;  ///< [n_tokens][n]
  int n = 0;
  // The RMS norm of x, times weight:
  const float* weight = nullptr;  ///< [n]; nullptr: x as it is
  float eps = 0;
  float* shown = nullptr;  ///< [n_tokens][n], the norm for a tap; nullptr: nobody looks
  // Without a norm, x as the kernel that made it has rounded it:
  const std::byte* rounded = nullptr;  ///< [n_tokens][rounded_bytes(n)]
  const float* squares = nullptr;  ///< [n_tokens][n / dim][n_squares]: sums of squares of a head's parts, by
                                   ///< whose RMS norm x is still to be multiplied; nullptr: it is not
  int dim = 0;                     ///< of a head
  int n_squares = 0;
};

/// One of the matrices of a launch; its rows go to y[out], y[out + 1], ...
struct ProjectPart {
  DeviceMatrix matrix;
  int first_block;
  int block_rows;  ///< of each of its blocks
  int chunk_rows;  ///< of them, as many as are staged at a time
  int out;
};

inline constexpr int kMaxProjectParts = 4;

/// y = matrices times input, for every token; or residual += that. Grid: {n_blocks, n_tokens}; a block has
/// rows of one matrix. Every block makes the input's norm anew, so that it costs no launch of its own.
struct Project {
  static constexpr const char* kName = "project";
  using PartOf = Products;
  struct Params {
    static constexpr auto kWhat = Products::What::project;
    ProjectInput input;
    ProjectPart parts[kMaxProjectParts];
    int n_parts;
    float* y;         // [n_tokens][y_stride]; may be nullptr where there is a residual
    float* residual;  // [n_tokens][y_stride]; nullptr: none. With it a block has at most its threads' rows
    int y_stride;
    const Codebooks* codebooks;
    ProductLayout layout;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
};

/// Matrices multiplied with one input in one launch.
struct Projection {
  ProjectPart parts[kMaxProjectParts];
  int n_parts = 0;
  int n_blocks = 0;
  ProductLayout layout;
};

/// Shares out the rows of matrices with equal columns between blocks; their results lie one after another.
/// `norm`: their input is normalised first.
Projection make_projection(std::span<const DeviceMatrix> matrices, bool norm, int multiprocessors);

}  // namespace redlite::gpu
