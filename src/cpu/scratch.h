#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "cpu/kernels.h"
#include "model/config.h"

namespace redlite::cpu {

/// Buffers of a forward pass over up to `batch` tokens: one allocation, divided once. The system gives it
/// memory as it is touched, so short chunks cost little.
class Scratch {
 public:
  Scratch(const model::Config& config, int batch, int threads);
  static uint64_t bytes_needed(const model::Config& config, int batch, int threads);

  int batch;       ///< most tokens of a chunk
  int proj_width;  ///< all that a mixer projects from one token, side by side
  int core_width;  ///< what a mixer hands to its output projection
  int pair_rows;  ///< (token, expert) pairs computed at once: at least `batch`, as an expert may get them all
  int thread_width;  ///< values of a thread's private scratch

  float* x = nullptr;     ///< [batch][n_embd] the residual
  float* h = nullptr;     ///< [batch][n_embd] its norm
  float* y = nullptr;     ///< [batch][n_embd] what a mixer or the experts add to it
  float* rope = nullptr;  ///< [batch][rope_dims]: cosines, then sines

  float* proj = nullptr;     ///< [batch][proj_width]
  float* core = nullptr;     ///< [batch][core_width]
  float* results = nullptr;  ///< [batch * n_experts_used][n_embd] of the experts; where proj and core were

  float* router_logits = nullptr;     ///< [batch][n_experts]
  float* predicted_logits = nullptr;  ///< [min(batch, kPredictTokens)][n_experts] of the next layer
  float* gate_up = nullptr;           ///< [pair_rows][2 * expert_ff]
  float* shared_gate_up = nullptr;    ///< [batch][2 * shared_ff]
  float* shared_gate = nullptr;       ///< [batch]

  float* attend_max = nullptr;  ///< [n_heads] softmax over blocks of positions of one token, see attention.cc
  float* attend_sum = nullptr;  ///< [n_heads]
  float* blocks = nullptr;      ///< [kAttendBlocks] of attend_width() values
  float* thread = nullptr;      ///< [threads][thread_width]

  Activations embd_rows;    ///< [batch][n_embd] h
  Activations core_rows;    ///< [batch][core_width]
  Activations shared_rows;  ///< [batch][shared_ff]
  Activations pair_inputs;  ///< [pair_rows][n_embd] h of the pairs' tokens
  Activations pair_hidden;  ///< [pair_rows][expert_ff]

 private:
  struct Plan {};
  Scratch(const model::Config& config, int batch, Plan);
  /// Divides memory at `base`; returns the values needed.
  size_t divide(const model::Config& config, int threads, float* base);

  AlignedBuffer<float> memory_;
};

/// Blocks of positions that a decoded token attends to in one parallel region.
inline constexpr int kAttendBlocks = 32;
/// Tokens of a chunk whose experts in the next layer are predicted; of more, a sample.
inline constexpr int kPredictTokens = 256;
/// Tokens of a chunk that attend to a block of positions while it is in the cache.
inline constexpr int kAttendTokens = 8;
/// Tokens of a chunk that a DeltaNet head goes through at once.
inline constexpr int kDeltaTokens = 32;

}  // namespace redlite::cpu
