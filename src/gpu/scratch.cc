#include "gpu/scratch.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gpu/kernels/attend.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/route.h"

namespace redlite::gpu {

Scratch::Scratch(Device& device, const model::Config& c, int most_tokens, int capacity)
    : batch(most_tokens), config_(c), arena_(device, "buffers of the forward pass") {
  const auto n = [](auto... factors) { return (size_t{1} * ... * static_cast<size_t>(factors)); };
  const int attention = c.n_heads * c.head_dim * (c.gated_attention ? 2 : 1) + 2 * c.n_kv_heads * c.head_dim;
  const int delta = c.conv_dim() + c.value_dim() + 2 * c.n_v_heads;
  proj_width = std::max(attention, delta);
  // Whole units of quantised activations for each expert.
  hidden_stride = (std::max(c.expert_ff, c.shared_ff) + 63) / 64 * 64;
  attend_parts = AttendSizes::most_parts(capacity, device.info().multiprocessors, c.n_kv_heads);

  x = arena_.take<float>(n(batch, c.n_embd));
  h = arena_.take<float>(n(batch, c.n_embd));
  h_rounded = arena_.take(n(batch, rounded_bytes(c.n_embd)));
  shown = arena_.take<float>(n(batch, c.n_embd));
  rope = arena_.take<float>(n(batch, c.rope_dims));
  rope_frequencies = arena_.take<double>(n(c.rope_dims));
  proj = arena_.take<float>(n(batch, proj_width));
  const int core_width = std::max(c.n_heads * c.head_dim, c.value_dim());
  core = arena_.take<float>(n(batch, core_width));
  core_rounded = arena_.take(n(batch, rounded_bytes(core_width)));
  core_squares = arena_.take<float>(n(batch, c.n_v_heads, DeltaStep::slices(c.state_dim)));
  part_max = arena_.take<float>(n(batch, c.n_heads, attend_parts));
  part_sum = arena_.take<float>(n(batch, c.n_heads, attend_parts));
  part_values = arena_.take<float>(n(batch, c.n_heads, attend_parts, c.head_dim));
  router = arena_.take<float>(n(batch, c.n_experts + 1));
  ids = arena_.take<int32_t>(n(batch, c.n_experts_used));
  slots = arena_.take<int32_t>(n(batch, c.n_experts_used));
  scores = arena_.take<float>(n(batch, c.n_experts_used + 1));
  tickets = arena_.take<uint32_t>(n(batch));
  hidden = arena_.take<float>(n(batch, c.n_experts_used + 1, hidden_stride));
  hidden_rounded = arena_.take(n(batch, c.n_experts_used + 1, rounded_bytes(hidden_stride)));
  logits = arena_.take<float>(n(batch, c.n_vocab));
  step = arena_.take<Step>(1);
  best = arena_.take<uint64_t>(1);
  best_ticket = arena_.take<uint32_t>(1);
  predicted_router = arena_.take<float>(n(Route::kMostAhead * c.n_experts));
  predicted_tickets = arena_.take<uint32_t>(n(Route::kMostAhead));

  host_step = device.allocate_host(sizeof(Step), "the step's record");
  host_x = device.allocate_host(n(batch, c.n_embd) * sizeof(float), "embeddings");
  host_logits = device.allocate_host(n(batch, c.n_vocab) * sizeof(float), "logits");
  host_best = device.allocate_host(sizeof(uint64_t), "the best token");
}

void Scratch::begin(Stream& stream) {
  const model::Config& c = config_;
  std::vector<double> frequencies;
  for (int i = 0; i < c.rope_dims / 2; ++i) {
    frequencies.push_back(std::pow(static_cast<double>(c.rope_base), -2.0 * i / c.rope_dims) /
                          (2 * std::numbers::pi));
  }
  const WaitAtExit wait(stream);
  const auto selected = static_cast<size_t>(batch * c.n_experts_used);
  // Kernels prefetch by what they find here, before it is theirs to read.
  stream.fill(ids, 0, selected * sizeof(int32_t));
  stream.fill(slots, 0, selected * sizeof(int32_t));
  stream.fill(tickets, 0, static_cast<size_t>(batch) * sizeof(uint32_t));
  stream.fill(predicted_tickets, 0, Route::kMostAhead * sizeof(uint32_t));
  stream.fill(best, 0, sizeof(uint64_t));
  stream.fill(best_ticket, 0, sizeof(uint32_t));
  stream.copy(rope_frequencies, frequencies.data(), frequencies.size() * sizeof(double));
  stream.synchronize();
}

}  // namespace redlite::gpu
