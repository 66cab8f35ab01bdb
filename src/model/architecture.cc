#include "model/architecture.h"

#include <array>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::model {

const Architecture& find_architecture(const gguf::File& file) {
  static constexpr std::array<const Architecture*, 3> kAll = {&kQwen3Next, &kQwen3Moe, &kQwen35Moe};
  const std::optional<std::string> name = file.get_string("general.architecture");
  if (!name) fail("{}: general.architecture is missing; this is not a language model", file.path());
  std::string known;
  for (const Architecture* architecture : kAll) {
    if (architecture->name == *name) return *architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture->name);
  }
  fail("{}: architecture {} is not supported; supported: {}", file.path(), quote(*name), known);
}

void bind_ends(Binder& binder, const Config& config, Weights& weights) {
  weights.token_embd = binder.matrix("token_embd.weight", config.n_vocab, config.n_embd);
  weights.output_norm = binder.vector("output_norm.weight", config.n_embd);
  weights.output = binder.has("output.weight") ? binder.matrix("output.weight", config.n_vocab, config.n_embd)
                                               : weights.token_embd;
}

AttentionWeights bind_attention(Binder& binder, const Config& config, int layer) {
  const auto name = [&](std::string_view tensor) { return block_tensor(layer, tensor); };
  const int width = config.n_heads * config.head_dim;
  const int q_rows = config.gated_attention ? 2 * width : width;
  const int kv_rows = config.n_kv_heads * config.head_dim;

  AttentionWeights out;
  if (binder.has(name("attn_qkv.weight"))) {
    const Matrix qkv = binder.matrix(name("attn_qkv.weight"), int64_t{q_rows} + 2 * kv_rows, config.n_embd);
    out.q = qkv.slice(0, q_rows);
    out.k = qkv.slice(q_rows, kv_rows);
    out.v = qkv.slice(q_rows + kv_rows, kv_rows);
  } else {
    out.q = binder.matrix(name("attn_q.weight"), q_rows, config.n_embd);
    out.k = binder.matrix(name("attn_k.weight"), kv_rows, config.n_embd);
    out.v = binder.matrix(name("attn_v.weight"), kv_rows, config.n_embd);
  }
  out.output = binder.matrix(name("attn_output.weight"), config.n_embd, width);
  out.q_norm = binder.vector(name("attn_q_norm.weight"), config.head_dim);
  out.k_norm = binder.vector(name("attn_k_norm.weight"), config.head_dim);
  return out;
}

DeltaNetWeights bind_delta_net_core(Binder& binder, const Config& config, int layer) {
  const auto name = [&](std::string_view tensor) { return block_tensor(layer, tensor); };
  DeltaNetWeights out;
  out.conv = binder.table(name("ssm_conv1d.weight"), config.conv_dim(), config.conv_kernel);
  out.dt = binder.vector(name("ssm_dt.bias"), config.n_v_heads);
  out.a = binder.vector(name("ssm_a"), config.n_v_heads);
  out.norm = binder.vector(name("ssm_norm.weight"), config.state_dim);
  out.output = binder.matrix(name("ssm_out.weight"), config.n_embd, config.value_dim());
  return out;
}

ExpertLayer bind_experts(Binder& binder, const Config& config, int layer, FfnWeights& ffn) {
  const auto name = [&](std::string_view tensor) { return block_tensor(layer, tensor); };
  ffn.router = binder.matrix(name("ffn_gate_inp.weight"), config.n_experts, config.n_embd);

  ExpertLayer out;
  if (binder.has(name("ffn_gate_up_exps.weight"))) {
    const ExpertTensor both = binder.experts(name("ffn_gate_up_exps.weight"), int64_t{2} * config.expert_ff,
                                             config.n_embd, config.n_experts);
    out.gate = both;
    out.gate.rows = config.expert_ff;
    out.gate.expert_bytes = both.expert_bytes / 2;
    out.up = out.gate;
    out.up.offset += out.gate.expert_bytes;
  } else {
    out.gate =
        binder.experts(name("ffn_gate_exps.weight"), config.expert_ff, config.n_embd, config.n_experts);
    out.up = binder.experts(name("ffn_up_exps.weight"), config.expert_ff, config.n_embd, config.n_experts);
  }
  out.down = binder.experts(name("ffn_down_exps.weight"), config.n_embd, config.expert_ff, config.n_experts);
  return out;
}

void bind_shared_expert(Binder& binder, const Config& config, int layer, FfnWeights& ffn) {
  const auto name = [&](std::string_view tensor) { return block_tensor(layer, tensor); };
  ffn.shared_gate_inp = binder.matrix(name("ffn_gate_inp_shexp.weight"), 1, config.n_embd);
  ffn.shared_gate = binder.matrix(name("ffn_gate_shexp.weight"), config.shared_ff, config.n_embd);
  ffn.shared_up = binder.matrix(name("ffn_up_shexp.weight"), config.shared_ff, config.n_embd);
  ffn.shared_down = binder.matrix(name("ffn_down_shexp.weight"), config.n_embd, config.shared_ff);
}

}  // namespace redlite::model
