#pragma once

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// How the positions a token looks back on are shared out between blocks: parts of equal length, as many as
/// the graph has blocks for at most. The same for every chunk a token may come in.
struct Split {
  int length;  ///< positions of a part; a multiple of Attend::kTile
  int parts;
};

/// Attention of consecutive tokens, up to the sum over positions: norm and rotation of q and k, keys and
/// values to the cache, scores, softmax and weighted values of a part of the positions. A block has all heads
/// of one K/V head, one token and one part. Grid: {n_kv_heads, max_parts, n_tokens}.
///
/// The launch's own tokens are not read from the cache, where other blocks write them, but computed anew.
struct Attend {
  static constexpr const char* kName = "attend";
  static constexpr int kTile = 32;         ///< positions whose keys are in shared memory at a time
  static constexpr int kLeastLength = 64;  ///< of a part
  static constexpr int kMaxGroup = 16;     ///< heads of a K/V head
  static constexpr int kMaxHeadDim = 256;
  struct Params {
    const float* proj;    // [n_tokens][proj_stride]: q (gated: per head q, gate), k, v
    const float* q_norm;  // [head_dim]
    const float* k_norm;  // [head_dim]
    const float* rope;    // [n_tokens][rope_dims]
    void* keys;           // [n_kv_heads][capacity][head_dim] of float, or binary16
    void* values;
    float* part_max;     // [n_tokens][n_heads][max_parts]
    float* part_sum;     // [n_tokens][n_heads][max_parts]
    float* part_values;  // [n_tokens][n_heads][max_parts][head_dim]: not divided by the sum
    const Step* step;
    int proj_stride;
    int q_stride, k_offset, v_offset;
    int capacity;
    int head_dim, rope_dims, group;
    bool half_kv;
    float eps;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
  static size_t dynamic_shared(int group, int head_dim) {
    return sizeof(float) *
           (static_cast<size_t>(group) * head_dim + static_cast<size_t>(kTile) * (head_dim + 4));
  }
};

/// Puts the parts together, in their order, and gates: core[head] = sum / total * sigmoid(gate).
/// Grid: {n_heads, n_tokens}.
struct AttendCombine {
  static constexpr const char* kName = "attend_combine";
  struct Params {
    const float* part_max;
    const float* part_sum;
    const float* part_values;
    const float* gate;   // [n_tokens][gate_stride], head h at h * gate_head_stride; nullptr: none
    float* core;         // [n_tokens][n_heads][head_dim]
    std::byte* rounded;  // [n_tokens][rounded_bytes(n_heads * head_dim)]
    const Step* step;
    int max_parts;
    int gate_stride, gate_head_stride;
    int head_dim;                    // a multiple of 16
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
