#pragma once

#include "gpu/kernels/attend_parts.h"

/// Attention with keys and values in binary16, on tensor cores, for one token and for many; for kernels only.
///
/// What they are multiplied with are floats: each goes in as two halves, whose sum differs from it by 2^-22
/// of it at most. A score is a sum over the high halves and one over the low ones, each in the order of
/// dimensions; a value's sum takes 16 positions at a time, high halves before low ones. So they have the same
/// bits in both kernels, for which keys and values always are the first operand of simt::multiply_f16().
namespace redlite::gpu {

struct TwoHalves {
  uint16_t high, low;
};
RL_DEVICE inline TwoHalves split(float x) {
  const uint16_t high = simt::float_to_half(x);
  return {high, simt::float_to_half(x - simt::half_to_float(high))};
}

/// Where this thread's row of a second operand starts, of kQueries rows `stride` halves apart, for
/// load_matrices() of kDepth columns from `column` on.
RL_DEVICE inline const uint16_t* operand_row(const uint16_t* rows, int stride, int column) {
  const int lane = simt::lane_index();
  return rows + lane % 8 * stride + column + 8 * (lane / 8);
}

/// Scores of kTiles times 16 positions, whose keys lie `stride` halves apart, with eight queries in two
/// halves each: score[t][i] of position 16 t + lane / 4 + 8 (i / 2) and query 2 (lane % 4) + i % 2.
template <int kTiles>
RL_DEVICE inline void score_positions(const uint16_t* keys, const uint16_t* high, const uint16_t* low,
                                      int stride, int dim, float (&score)[kTiles][4]) {
  const int lane = simt::lane_index();
  const uint16_t* key = keys + lane % 16 * stride + 8 * (lane / 16);
  // Every second 16 dimensions have sums of their own: a product waits for the one before it.
  float of_high[kTiles][2][4] = {}, of_low[kTiles][2][4] = {};
  RL_UNROLL_BY(2)
  for (int at = 0; at < dim; at += AttendHalves::kDepth) {
    uint32_t h[4], l[4], k[kTiles][2][4];
    simt::load_matrices(h, operand_row(high, stride, at));
    simt::load_matrices(l, operand_row(low, stride, at));
    RL_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      RL_UNROLL
      for (int i = 0; i < 2; ++i)
        simt::load_matrices(k[t][i], key + AttendHalves::kRows * t * stride + at + 16 * i);
    }
    RL_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      RL_UNROLL
      for (int i = 0; i < 2; ++i) {
        simt::multiply_f16(of_high[t][i], k[t][i], {h[2 * i], h[2 * i + 1]});
        simt::multiply_f16(of_low[t][i], k[t][i], {l[2 * i], l[2 * i + 1]});
      }
    }
  }
  RL_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i)
      score[t][i] = (of_high[t][0][i] + of_high[t][1][i]) + (of_low[t][0][i] + of_low[t][1][i]);
  }
}

/// The weights of eight queries for 32 positions, as second operands.
struct TileWeights {
  uint32_t high[4], low[4];

  /// From rows of queries `stride` halves apart.
  RL_DEVICE void load(const uint16_t* of_high, const uint16_t* of_low, int stride, int position) {
    simt::load_matrices(high, operand_row(of_high, stride, position));
    simt::load_matrices(low, operand_row(of_low, stride, position));
  }
};

/// Adds the weighted values of 32 positions, which lie `stride` halves apart, for kPieces times 16 dimensions
/// from `dim` on: sum[m][i] of dimension dim + 16 m + lane / 4 + 8 (i / 2) and query 2 (lane % 4) + i % 2.
template <int kPieces>
RL_DEVICE inline void add_values(const uint16_t* values, int stride, int dim, const TileWeights& weights,
                                 float (*sum)[4]) {
  const int lane = simt::lane_index();
  const uint16_t* value = values + (lane % 8 + 8 * (lane / 16)) * stride + dim + 8 * (lane / 8 % 2);
  RL_UNROLL
  for (int i = 0; i < 2; ++i) {
    uint32_t v[kPieces][4];
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m)
      simt::load_matrices_transposed(v[m], value + 16 * i * stride + AttendHalves::kRows * m);
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m)
      simt::multiply_f16(sum[m], v[m], {weights.high[2 * i], weights.high[2 * i + 1]});
    RL_UNROLL
    for (int m = 0; m < kPieces; ++m)
      simt::multiply_f16(sum[m], v[m], {weights.low[2 * i], weights.low[2 * i + 1]});
  }
}

/// Zeros behind a head's dimensions in rows of shared memory, where no copy comes.
RL_DEVICE inline void pad_rows(uint16_t* rows, int n, int dim) {
  const int stride = AttendHalves::stride(dim), pad = AttendHalves::padded(dim) - dim;
  for (int i = simt::thread_index(); i < n * pad; i += kBlockThreads)
    rows[i / pad * stride + dim + i % pad] = 0;
}

}  // namespace redlite::gpu
