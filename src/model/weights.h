#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/type.h"

namespace redlite::model {

/// A matrix of `rows` output features; each row is `cols` values in consecutive quant blocks. Not owned.
struct Matrix {
  const std::byte* data = nullptr;
  quant::Type type = quant::Type::F32;
  int rows = 0;
  int cols = 0;

  size_t row_bytes() const { return quant::row_bytes(type, static_cast<size_t>(cols)); }
  size_t bytes() const { return row_bytes() * static_cast<size_t>(rows); }
  const std::byte* row(int r) const { return data + row_bytes() * static_cast<size_t>(r); }
  explicit operator bool() const { return data != nullptr; }
  /// Rows [first, first + count) as a matrix of their own.
  Matrix slice(int first, int count) const { return {row(first), type, count, cols}; }
};

/// A short vector (norms, biases), decoded to F32 when the model is opened.
using Vector = std::vector<float>;

/// Attention; shapes as (rows x cols).
struct AttentionWeights {
  Matrix q;       ///< (n_heads * head_dim [* 2: q and gate interleaved per head]) x n_embd
  Matrix k;       ///< (n_kv_heads * head_dim) x n_embd
  Matrix v;       ///< (n_kv_heads * head_dim) x n_embd
  Matrix output;  ///< n_embd x (n_heads * head_dim)
  Vector q_norm;  ///< head_dim
  Vector k_norm;  ///< head_dim
};

/// Gated DeltaNet. Either {qkv, z} or the older fused {qkvz} is present; either {ba} or {beta, alpha}.
struct DeltaNetWeights {
  Matrix qkv;     ///< conv_dim x n_embd, rows: q (key_dim), k (key_dim), v (value_dim)
  Matrix z;       ///< value_dim x n_embd
  Matrix qkvz;    ///< (conv_dim + value_dim) x n_embd; per K head [q, k, v of its V heads, z of its V heads]
  Matrix ba;      ///< (2 * n_v_heads) x n_embd; per K head [b of its V heads, a of its V heads]
  Matrix beta;    ///< n_v_heads x n_embd
  Matrix alpha;   ///< n_v_heads x n_embd
  Vector conv;    ///< conv_dim x conv_kernel: conv[channel * conv_kernel + i], i = 0 the oldest input
  Vector dt;      ///< n_v_heads
  Vector a;       ///< n_v_heads, -exp(A_log)
  Vector norm;    ///< state_dim
  Matrix output;  ///< n_embd x value_dim
};

/// The experts' dense neighbours: router and shared expert.
struct FfnWeights {
  Matrix router;           ///< n_experts x n_embd
  Matrix shared_gate;      ///< shared_ff x n_embd; empty without a shared expert
  Matrix shared_up;        ///< shared_ff x n_embd
  Matrix shared_down;      ///< n_embd x shared_ff
  Matrix shared_gate_inp;  ///< 1 x n_embd
};

struct LayerWeights {
  Vector attn_norm;            ///< n_embd, before attention or DeltaNet
  Vector ffn_norm;             ///< n_embd, before the experts
  AttentionWeights attention;  ///< used when Config::layers says Attention
  DeltaNetWeights delta;       ///< used when it says DeltaNet
  FfnWeights ffn;
};

/// Everything dense. Matrices point into the mapped file.
struct Weights {
  Matrix token_embd;   ///< n_vocab x n_embd
  Vector output_norm;  ///< n_embd
  Matrix output;       ///< n_vocab x n_embd; token_embd when tied
  std::vector<LayerWeights> layers;
};

/// One of an expert's three matrices, for all experts of a layer, where it lies in the file.
struct ExpertTensor {
  quant::Type type = quant::Type::F32;
  int rows = 0;
  int cols = 0;
  uint32_t shard = 0;
  uint64_t offset = 0;        ///< of expert 0
  uint64_t expert_bytes = 0;  ///< bytes of one expert's matrix
  uint64_t expert_stride =
      0;  ///< from one expert to the next; larger than expert_bytes when gate and up are fused

  uint64_t offset_of(int expert) const { return offset + expert_stride * static_cast<uint64_t>(expert); }
};

/// The routed experts of one layer: gate and up are expert_ff x n_embd, down is n_embd x expert_ff.
struct ExpertLayer {
  ExpertTensor gate;
  ExpertTensor up;
  ExpertTensor down;

  uint64_t triplet_bytes() const { return gate.expert_bytes + up.expert_bytes + down.expert_bytes; }
};

}  // namespace redlite::model
