#pragma once

#include <algorithm>

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

/// How the positions a token looks back on are shared out between blocks: parts of equal length, at most as
/// many as the launch has blocks for. The same for every chunk a token may come in.
struct Split {
  int length;  ///< positions of a part; a multiple of AttendSizes::kTile
  int parts;
};

struct AttendSizes {
  static constexpr int kTile = 32;         ///< positions that have a maximum of their own
  static constexpr int kLeastLength = 32;  ///< of a part
  static constexpr int kMostParts = 256;   ///< of a K/V head
  static constexpr int kMaxGroup = 16;     ///< heads of a K/V head
  static constexpr int kMaxHeadDim = 256;

  /// Most parts for contexts of `capacity`: so many that two blocks can be on each multiprocessor. A larger
  /// capacity changes no part of the positions that a smaller one has.
  static int most_parts(int capacity, int multiprocessors, int n_kv_heads) {
    const int of_device = std::clamp(2 * multiprocessors / std::max(n_kv_heads, 1), 1, kMostParts);
    return std::clamp((capacity + kLeastLength - 1) / kLeastLength, 1, of_device);
  }
};

/// Shapes of attention with keys and values in binary16: attend_halves.h.
struct AttendHalves {
  static constexpr int kQueries = 8;  ///< that a warp multiplies with at a time
  static constexpr int kRows = 16;    ///< positions, or dimensions, of a product's first operand
  static constexpr int kDepth = 32;   ///< dimensions, or positions, that one load has of the second operand

  static constexpr int kTogether =
      4;  ///< pieces of 16 dimensions, whose sums over values are under way together

  /// What dimensions are filled up to with zeros.
  static RL_HOST_DEVICE int padded(int head_dim) {
    constexpr int kWhole = kTogether * kRows;
    static_assert(kWhole % kDepth == 0);
    return (head_dim + kWhole - 1) / kWhole * kWhole;
  }
  /// Halves from one row of queries, keys or values in shared memory to the next: rows start in different
  /// banks.
  static RL_HOST_DEVICE int stride(int head_dim) { return padded(head_dim) + 8; }
};

/// Attention of one token, up to the sum over positions: norm and rotation of q and k, key and value to the
/// cache, scores, softmax and weighted values of a part of the positions. A block has all heads of one K/V
/// head and one part, of which it brings kStage positions at a time to shared memory: the next keys while
/// values are used, and the next values while keys are. T is float, or uint16_t for binary16. Grid:
/// {n_kv_heads, max_parts}.
template <typename T>
struct Attend {
  static constexpr const char* kName = "attend";
  static constexpr int kThreads = static_cast<int>(kStepThreads), kBlocksOfMultiprocessor = 2;
  static constexpr int kStage = 128 / sizeof(T);  ///< positions whose keys and values are in shared memory
  struct Params {
    const float* proj;    // [proj_stride]: q (gated: per head q, gate), k, v
    const float* q_norm;  // [head_dim]
    const float* k_norm;  // [head_dim]
    const float* rope;    // [rope_dims]
    T* keys;              // [n_kv_heads][capacity][head_dim]
    T* values;
    float* part_max;     // [n_heads][max_parts]
    float* part_sum;     // [n_heads][max_parts]
    float* part_values;  // [n_heads][max_parts][head_dim]: not divided by the sum
    const Step* step;
    int q_stride, k_offset, v_offset;
    int capacity;
    int head_dim, rope_dims, group;  // head_dim: a multiple of 4
    float eps;
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);

  /// Bytes between rows of keys or values in shared memory: pairs of rows do not meet in a bank.
  RL_HOST_DEVICE static int row_stride(int head_dim) {
    return sizeof(T) == 2 ? 2 * AttendHalves::stride(head_dim) : 4 * head_dim + 16;
  }
  /// Values between heads of q there.
  RL_HOST_DEVICE static int q_stride(int head_dim) { return head_dim + 4; }
  static size_t dynamic_shared(int group, int head_dim) {
    constexpr int kQueries = AttendHalves::kQueries;
    const int halves =
        sizeof(T) == 2 ? 2 * ((group + kQueries - 1) / kQueries * kQueries) : 0;  // rows of queries
    return sizeof(float) * static_cast<size_t>((group + 1) * q_stride(head_dim)) +
           static_cast<size_t>((halves + 2 * kStage) * row_stride(head_dim));
  }
};

/// Puts the parts together, in their order, and gates: core[head] = sum / total * sigmoid(gate).
/// Grid: {n_heads}.
struct AttendCombine {
  static constexpr const char* kName = "attend_combine";
  struct Params {
    const float* part_max;
    const float* part_sum;
    const float* part_values;
    const float* gate;   // head h at h * gate_head_stride; nullptr: none
    float* core;         // [n_heads][head_dim]
    std::byte* rounded;  // [rounded_bytes(n_heads * head_dim)]
    const Step* step;
    int max_parts;
    int gate_head_stride;
    int head_dim;                    // a multiple of 16
    const uint32_t* skip = nullptr;  // the early-out flag
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
