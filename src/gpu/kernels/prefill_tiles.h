#pragma once

#include <cstdint>

#include "gpu/kernel.h"

namespace redlite::gpu {

/// Tokens of a tile: a grid of a prefill product shares out rows of the weights and tiles of tokens.
inline constexpr int kTileTokens = 64;

/// Tokens that multiply with one expert's weights: places [first, first + count) of the chunk's list of
/// selections, which is sorted by expert.
struct ExpertTile {
  int32_t expert;
  int32_t first;
  int32_t count;  ///< 1 to kTileTokens
};

/// Which rows of its input and output a product takes together.
struct TokenTiles {
  int n = 0;  ///< dense: rows 0 to n - 1 of the input, in tiles of kTileTokens

  // Experts: tiles of the sorted list, those of experts [first_expert, end_expert); nullptr: dense.
  const ExpertTile* tiles = nullptr;
  const int32_t* first_tile = nullptr;  ///< [n_experts + 1]: where each expert's tiles begin
  int first_expert = 0, end_expert = 0;
  const int32_t* input_row = nullptr;   ///< of a place in the list; nullptr: the place itself
  const int32_t* output_row = nullptr;  ///< ... ; nullptr: the place itself
  uint64_t slot_bytes = 0;  ///< from one expert's weights to the next, those of first_expert first
};

/// What a product does with its results: y[row][first_column + row of the weights] = them, sum += them.
struct ProductOutput {
  float* y = nullptr;    ///< [rows][stride]; nullptr: not kept
  float* sum = nullptr;  ///< [rows][stride]; nullptr: nothing is added up
  int stride = 0;
};

/// Finds tile `number` of the grid: which expert's, its first place and how many tokens; false: there is
/// none.
RL_HOST_DEVICE inline bool find_tile(const TokenTiles& t, int number, ExpertTile& tile) {
  if (t.tiles == nullptr) {
    const int first = number * kTileTokens, left = t.n - first;
    tile = {0, first, left < kTileTokens ? left : kTileTokens};
    return left > 0;
  }
  const int i = t.first_tile[t.first_expert] + number;
  if (i >= t.first_tile[t.end_expert]) return false;
  tile = t.tiles[i];
  return true;
}

}  // namespace redlite::gpu
