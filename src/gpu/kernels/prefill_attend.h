#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/attend.h"

namespace redlite::gpu {

/// Norm and rotation of q and k of many tokens; keys and values go to the cache. A warp has one head of q, or
/// one K/V head. Grid: {n_tokens}.
struct PrefillHeads {
  static constexpr const char* kName = "prefill_heads";
  struct Params {
    const float* proj;    // [n_tokens][proj_stride]: q (gated: per head q, gate), k, v
    const float* q_norm;  // [head_dim]
    const float* k_norm;  // [head_dim]
    const float* rope;    // [n_tokens][rope_dims]
    float* q;             // [n_tokens][n_heads][head_dim], with 1 / sqrt(head_dim)
    void* keys;           // [n_kv_heads][capacity][head_dim] of float, or binary16
    void* values;
    int position;  // of the first token
    int proj_stride;
    int q_stride, k_offset, v_offset;
    int capacity;
    int n_heads, n_kv_heads;
    int head_dim, rope_dims;
    bool half_kv;
    float eps;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

/// Attention of many tokens, to the same bits as Attend and AttendCombine: a block has one K/V head and as
/// many tokens as make kQueries queries of its group of heads, and goes through the tiles of positions in
/// order. T: float or uint16_t (binary16), of keys and values. Grid: {token_blocks(), n_kv_heads}.
template <typename T>
struct PrefillAttend {
  static constexpr const char* kName = "prefill_attend";
  static constexpr int kThreads = 256;
  static constexpr int kQueries = 64;
  struct Params {
    const float* q;  // [n_tokens][n_heads][head_dim]
    const T* keys;   // [n_kv_heads][capacity][head_dim]
    const T* values;
    const float* gate;  // [n_tokens][gate_stride], head h at h * gate_head_stride; nullptr: none
    float* core;        // [n_tokens][n_heads][head_dim]
    int position;       // of the first token
    int n_tokens;
    int capacity;
    int max_parts;  // what a token's positions are shared out to: Split
    int gate_stride, gate_head_stride;
    int n_heads, group;
    int head_dim;
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);

  static RL_HOST_DEVICE int tokens_of_block(int group) { return kQueries / group; }
  /// The tokens that block `number` of `n_blocks` has: the last ones, which have the most positions, come
  /// first.
  struct BlockTokens {
    int first, n;
  };
  static RL_HOST_DEVICE BlockTokens block_tokens(const Params& p, uint32_t number, uint32_t n_blocks) {
    const int most = tokens_of_block(p.group), first = static_cast<int>(n_blocks - 1 - number) * most;
    return {first, p.n_tokens - first < most ? p.n_tokens - first : most};
  }
  static uint32_t token_blocks(int n, int group) {
    return static_cast<uint32_t>((n + tokens_of_block(group) - 1) / tokens_of_block(group));
  }
  /// Bytes of a row of keys or values in shared memory; the padding keeps rows out of each other's banks.
  static RL_HOST_DEVICE int row_stride(int head_dim) {
    return sizeof(T) == 2 ? 2 * AttendHalves::stride(head_dim) : 4 * (head_dim + 4);
  }
  static size_t dynamic_shared(int head_dim) {
    const auto row = static_cast<size_t>(row_stride(head_dim));  // of a query, too: floats, or twice halves
    return (sizeof(T) == 2 ? 2 : 1) * kQueries * row + 2 * static_cast<size_t>(AttendSizes::kTile) * row;
  }
};

}  // namespace redlite::gpu
