#pragma once

#include "gpu/codebooks.h"
#include "gpu/kernel.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/prefill_tiles.h"

namespace redlite::gpu {

/// Activations of many tokens in device memory, rounded to 8 bits with a scale for each strip of 16 values
/// (activations.h).
struct QuantizedRows {
  uint32_t* q = nullptr;      ///< [rows][strips][4]: four signed bytes a word
  float* scale = nullptr;     ///< [rows][strips]
  float* sum = nullptr;       ///< [rows][strips]: the scale times the sum of the strip's integers
  float* pair_sum = nullptr;  ///< [rows][strips / 2]: sums of two of these
  int strips = 0;             ///< of a row, a multiple of 4
};

/// Strips of a unit that share a min and a scale; 0: the type has no mins (units.h).
RL_HOST_DEVICE constexpr int min_strips(quant::Type type) {
  using quant::Type;
  if (type == Type::Q2_K) return 1;
  return type == Type::Q4_K || type == Type::Q5_K || type == Type::Q4_1 || type == Type::Q5_1 ? 2 : 0;
}

struct PrefillProductParams {
  DeviceMatrix w;
  QuantizedRows x;
  TokenTiles tokens;
  int units;       // of a row (units.h)
  int slabs;       // of a row, see PrefillSlab
  int row_groups;  // of kRows rows, one after another in a block: where rows are short it has more than one
  ProductOutput out;
  const Codebooks* codebooks;
};

/// Quantised weights times the activations of many tokens, on tensor cores, to the same bits as one token's
/// products: weights are unpacked once for a tile of tokens, every strip's products of integers are exact,
/// and the sums of floats have the order of multiply.h: within a unit, then between units in pairs, pairs of
/// pairs and so on. There these are threads, here one thread has all of them and a stack of sums that wait
/// for as much again. Grid: {row_blocks(), tiles}. Dynamic shared memory: shared_bytes().
///
/// kUnitStrips: strips of a unit, 2 or 4. kMinStrips: min_strips() of the type. kGrouped: a block has several
/// groups of rows; others are slower with the code for that.
template <int kUnitStrips, int kMinStrips, bool kGrouped>
struct PrefillProduct {
  static constexpr const char* kName = "prefill_product";
  static constexpr int kThreads = 256;
  static constexpr int kBlocksOfMultiprocessor = 2;
  static constexpr int kRows = 64;  ///< of the weights, for a block
  using Params = PrefillProductParams;
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static uint32_t row_blocks(int rows, int row_groups) {
    return static_cast<uint32_t>((rows + row_groups * kRows - 1) / (row_groups * kRows));
  }
};

inline constexpr int kSlabStrips = 16, kSlabValues = 16 * kSlabStrips;

/// What a block keeps of a slab: 16 strips of its rows and of its tokens. Strips behind a row's end, to a
/// power of two of units, are zero, which changes no sum.
template <int kMinStrips>
struct alignas(16) PrefillSlab {
  static constexpr int kStride =
      kSlabValues + 16;  ///< bytes of a row; keeps eight rows out of each other's banks
  static constexpr int kScaleStride = kSlabStrips + 4;                          ///< floats of a row, likewise
  static constexpr int kSums = kMinStrips == 0 ? 0 : kSlabStrips / kMinStrips;  ///< of a row
  uint8_t w[64][kStride];
  uint8_t x[kTileTokens][kStride];
  float w_scale[64][kScaleStride];  ///< where pairs of strips share them: of a quad {scales, mins}
  float x_scale[kTileTokens][kScaleStride];
  float w_min[kMinStrips == 1 ? 64 : 1][kScaleStride];
  float x_sum[kMinStrips == 0 ? 1 : kTileTokens][kSums + 4];
};

}  // namespace redlite::gpu
