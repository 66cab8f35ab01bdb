#include "cpu/scratch.h"

#include <algorithm>

namespace redlite::cpu {
namespace {

// Pairs of one parallel region: enough work to share out, and a bound on the scratch of a large chunk.
constexpr int kPairRows = 4096;

size_t values(int rows, int width) {
  // A multiple of a cache line, so that every buffer begins on one.
  return (static_cast<size_t>(rows) * static_cast<size_t>(width) + 15) / 16 * 16;
}

}  // namespace

Scratch::Scratch(const model::Config& c, int batch_, Plan) : batch(batch_) {
  const int q_width = c.n_heads * c.head_dim * (c.gated_attention ? 2 : 1);
  proj_width =
      std::max(q_width + 2 * c.n_kv_heads * c.head_dim, c.conv_dim() + c.value_dim() + 2 * c.n_v_heads);
  core_width = std::max(c.n_heads * c.head_dim, c.value_dim());
  pair_rows = std::max(batch, std::min(batch * c.n_experts_used, kPairRows));
  // A DeltaNet head's q, k, v, o and two gates; an attention tile's softmax and one block's result.
  const int group = c.n_kv_heads > 0 ? c.n_heads / c.n_kv_heads : 0;
  thread_width =
      std::max(kDeltaTokens * (4 * c.state_dim + 2), 2 * kAttendTokens * group + group * (c.head_dim + 2));
}

Scratch::Scratch(const model::Config& config, int batch_, int threads) : Scratch(config, batch_, Plan()) {
  memory_ = AlignedBuffer<float>(divide(config, threads, nullptr));
  divide(config, threads, memory_.data());
  embd_rows = Activations(batch, config.n_embd);
  core_rows = Activations(batch, core_width);
  shared_rows = Activations(batch, config.shared_ff);
  pair_inputs = Activations(pair_rows, config.n_embd);
  pair_hidden = Activations(pair_rows, config.expert_ff);
}

uint64_t Scratch::bytes_needed(const model::Config& config, int batch, int threads) {
  Scratch plan(config, batch, Plan());
  return plan.divide(config, threads, nullptr) * sizeof(float) +
         Activations::bytes_needed(batch, config.n_embd) + Activations::bytes_needed(batch, plan.core_width) +
         Activations::bytes_needed(batch, config.shared_ff) +
         Activations::bytes_needed(plan.pair_rows, config.n_embd) +
         Activations::bytes_needed(plan.pair_rows, config.expert_ff);
}

size_t Scratch::divide(const model::Config& c, int threads, float* base) {
  size_t used = 0;
  const auto take = [&](int rows, int width) {
    float* buffer = base == nullptr ? nullptr : base + used;
    used += values(rows, width);
    return buffer;
  };
  x = take(batch, c.n_embd);
  h = take(batch, c.n_embd);
  y = take(batch, c.n_embd);
  rope = take(batch, c.rope_dims);

  const size_t mixers = used;
  proj = take(batch, proj_width);
  core = take(batch, core_width);
  const size_t mixers_end = used;
  used = mixers;
  results = take(batch * c.n_experts_used, c.n_embd);
  used = std::max(used, mixers_end);

  router_logits = take(batch, c.n_experts);
  predicted_logits = take(std::min(batch, kPredictTokens), c.n_experts);
  gate_up = take(pair_rows, 2 * c.expert_ff);
  shared_gate_up = take(batch, 2 * c.shared_ff);
  shared_gate = take(batch, 1);
  attend_max = take(1, c.n_heads);
  attend_sum = take(1, c.n_heads);
  blocks = take(kAttendBlocks, c.n_heads * (c.head_dim + 2));
  thread = take(threads, thread_width);
  return used;
}

}  // namespace redlite::cpu
