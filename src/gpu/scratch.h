#pragma once

#include "gpu/arena.h"
#include "gpu/kernels/step.h"
#include "model/config.h"

namespace redlite::gpu {

/// Buffers of a forward pass over at most `batch` tokens. Pointers without a note are to device memory.
struct Scratch {
  Scratch(Device& device, const model::Config& config, int batch, int capacity);
  /// Puts first values where kernels expect some. Done when it returns.
  void begin(Stream& stream);

  size_t bytes() const { return arena_.bytes(); }

  int batch;
  int proj_width;     ///< of what a mixer projects its input to, at most
  int hidden_stride;  ///< from one expert's hidden values to the next expert's
  int attend_parts;   ///< blocks that share out the positions of a K/V head

 private:
  const model::Config& config_;
  Arena arena_;

 public:
  float* x;                   ///< [batch][n_embd]
  float* h;                   ///< [batch][n_embd]
  std::byte* h_rounded;       ///< [batch][rounded_bytes(n_embd)]
  float* shown;               ///< [batch][n_embd], for a tap
  float* rope;                ///< [batch][rope_dims]
  double* rope_frequencies;   ///< [rope_dims / 2], in turns for each position
  float* proj;                ///< [batch][proj_width]
  float* core;                ///< [batch][heads of the mixer, together]
  std::byte* core_rounded;    ///< [batch][rounded_bytes(the same)]
  float* core_squares;        ///< [batch][n_v_heads][DeltaStep::slices()]
  float* part_max;            ///< [batch][n_heads][attend_parts]
  float* part_sum;            ///< [batch][n_heads][attend_parts]
  float* part_values;         ///< [batch][n_heads][attend_parts][head_dim]
  float* router;              ///< [batch][n_experts + 1]
  int32_t* ids;               ///< [batch][n_experts_used]
  int32_t* slots;             ///< [batch][n_experts_used]
  float* scores;              ///< [batch][n_experts_used + 1]: logits of the selected experts
  uint32_t* tickets;          ///< [batch]
  float* hidden;              ///< [batch][n_experts_used + 1][hidden_stride]
  std::byte* hidden_rounded;  ///< [batch][n_experts_used + 1][rounded_bytes(hidden_stride)]
  float* logits;              ///< [batch][n_vocab]
  Step* step;
  uint64_t* best;               ///< of Best
  uint32_t* best_ticket;        ///< of Best
  float* predicted_router;      ///< [Route::kMostAhead][n_experts], of the next layers
  uint32_t* predicted_tickets;  ///< [Route::kMostAhead]

  HostBuffer host_step;    ///< Step
  HostBuffer host_x;       ///< float [batch][n_embd]
  HostBuffer host_logits;  ///< float [batch][n_vocab]
  HostBuffer host_best;    ///< uint64_t, from Best
};

}  // namespace redlite::gpu
