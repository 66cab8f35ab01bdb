#pragma once

#include "gpu/planes.h"
#include "quant/type.h"

namespace redlite::gpu {

/// A matrix in device memory and how its rows are multiplied.
struct DeviceMatrix {
  PlaneMatrix planes;
  uint32_t row_bytes[kMaxPlanes] = {};  ///< of a row in each plane; 0: the type has no such plane
  quant::Type type = quant::Type::F32;
  int lanes = 1;     ///< threads that share a row: as many as it has units, at most a warp
  int segments = 1;  ///< of the columns, each for another warp: 32 units
};

DeviceMatrix device_matrix(quant::Type type, int rows, int cols, const std::byte* data);

/// Rows that a warp has at once, and those that all warps of a block have if each has one group of them.
int rows_of_warp(const DeviceMatrix& m);
int rows_of_step(const DeviceMatrix& m);

/// Bytes at the beginning of the dynamic shared memory of a block that multiplies, for ProductBlock.
inline constexpr uint32_t kProductHeader = 640;

/// What lies where behind them: the vectors as integers, then as
/// floats, the weights of a norm, sums of rows, codebooks of up to two types.
struct ProductLayout {
  uint32_t vector_bytes;  ///< from one vector's integers to the next one's
  uint32_t floats_at;
  uint32_t float_bytes;  ///< from one vector's floats to the next one's
  uint32_t weights_at;   ///< of a norm
  uint32_t sums_at;
  uint32_t books_at[2];
  uint32_t stage_at;      ///< of weights
  uint32_t second_stage;  ///< from there to those of a block's second job
  uint32_t chunk_bytes;   ///< from a staged chunk to the next one's place
  int chunk_rows;         ///< of each matrix of routed experts, as many as are staged at a time
  int shared_chunk_rows;  ///< ... of the shared one
  uint32_t bytes;         ///< of all, with the header
};

struct ProductNeeds {
  int n_vectors = 1;
  int n = 0;       ///< of a vector
  int n_sums = 0;  ///< floats
  bool floats = false, integers = false;
  bool norm = false;         ///< the vector is normalised
  size_t books[2] = {0, 0};  ///< book_bytes() of the types that a block has
  size_t chunk = 0;          ///< bytes of weights that are staged at a time
  int chunks = 1;            ///< in all
};
ProductLayout product_layout(const ProductNeeds& needs);

/// True if a matrix of this type is multiplied with floats, false: with integers of 8 bits.
RL_HOST_DEVICE constexpr bool takes_floats(quant::Type type) {
  return type == quant::Type::F32 || type == quant::Type::F16 || type == quant::Type::BF16;
}
size_t book_bytes(quant::Type type);

/// Bytes that `rows` consecutive rows of a plane take in shared memory, where they lie as in device memory,
/// but for the multiple of 16 at which they start.
RL_HOST_DEVICE constexpr uint32_t staged_bytes(uint32_t row_bytes, int rows) {
  return row_bytes == 0 ? 0 : (row_bytes * static_cast<uint32_t>(rows) + 31) / 16 * 16;
}
/// ... of all planes; 0 for floats, which are not staged.
uint32_t staged_bytes(const DeviceMatrix& m, int rows);

/// Bytes of a vector of n values rounded to 8 bits (QuantizedActivations).
size_t rounded_bytes(int n);

}  // namespace redlite::gpu
