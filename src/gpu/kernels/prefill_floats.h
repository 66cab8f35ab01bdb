#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/prefill_tiles.h"

namespace redlite::gpu {

struct PrefillFloatsParams {
  DeviceMatrix w;
  const float* x;  ///< [rows][x_stride], 16-byte aligned
  int x_stride;
  TokenTiles tokens;
  ProductOutput out;
  int lanes;  ///< chains of a sum, a power of two: lane l has steps l, l + lanes, ... of kStep values
};

/// Weights of type F32, F16 or BF16 times the activations of many tokens, every sum in the order that decode
/// has for one token: chains of fused multiply-adds, folded in halves. With kStep 1 and 16 lanes this is the
/// router's order (model/router.h), else that of dot.h. Grid: {row_blocks(), tiles, token_blocks()}.
template <quant::Type T, int kStep>
struct PrefillFloats {
  static constexpr const char* kName = "prefill_floats";
  static constexpr int kThreads = 256;
  static constexpr int kRows = 32;  ///< of the weights, for a block
  static constexpr int kRowsOfThread = 8;
  static constexpr int kTokensOfThread = 8;
  /// Values of a row in shared memory at a time, a multiple of 32 kStep. Those of F32 come in the background:
  /// the next ones while these are multiplied.
  static constexpr int kSlab = T == quant::Type::F32 ? 128 : 256;
  static constexpr int kPlaces = T == quant::Type::F32 ? 2 : 1;
  static constexpr int kStride = kSlab + 4;
  using Params = PrefillFloatsParams;
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);

  /// Tokens of a block: two warps side by side, 32 / lanes groups of threads in each.
  static RL_HOST_DEVICE int tokens_of_block(int lanes) {
    const int tokens = 2 * kTokensOfThread * (32 / lanes);
    return tokens < kTileTokens ? tokens : kTileTokens;
  }
  static uint32_t row_blocks(int rows) { return static_cast<uint32_t>((rows + kRows - 1) / kRows); }
  static uint32_t token_blocks(int lanes) {
    return static_cast<uint32_t>(kTileTokens / tokens_of_block(lanes));
  }
  static size_t shared_bytes(int lanes) {
    return sizeof(float) * kPlaces * kStride * static_cast<size_t>(kRows + tokens_of_block(lanes));
  }
};

}  // namespace redlite::gpu
