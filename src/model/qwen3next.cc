// Qwen3-Next (80B-A3B, Coder-Next): three Gated DeltaNet layers to one of gated attention, a shared expert.
#include "model/architecture.h"

namespace redlite::model {

namespace {

void read(const Keys& keys, Config& config) {
  read_attention(keys, config);
  config.gated_attention = true;
  read_layer_kinds(keys, config);
  read_delta_net(keys, config);
  config.pairing = HeadPairing::Grouped;
  read_experts(keys, config);
  read_shared_expert(keys, config);
}

void bind(Binder& binder, const Config& config, Weights& weights, std::vector<ExpertLayer>& experts) {
  bind_ends(binder, config, weights);
  for (int i = 0; i < config.n_layers; ++i) {
    const auto name = [&](std::string_view tensor) { return block_tensor(i, tensor); };
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attn_norm = binder.vector(name("attn_norm.weight"), config.n_embd);
    layer.ffn_norm = binder.vector(name("post_attention_norm.weight"), config.n_embd);
    if (config.layers[static_cast<size_t>(i)] == LayerKind::Attention) {
      layer.attention = bind_attention(binder, config, i);
    } else {
      layer.delta = bind_delta_net_core(binder, config, i);
      if (binder.has(name("ssm_in.weight"))) {  // files from before the projection was split
        layer.delta.qkvz = binder.matrix(name("ssm_in.weight"),
                                         int64_t{config.conv_dim()} + config.value_dim(), config.n_embd);
      } else {
        layer.delta.qkv = binder.matrix(name("attn_qkv.weight"), config.conv_dim(), config.n_embd);
        layer.delta.z = binder.matrix(name("attn_gate.weight"), config.value_dim(), config.n_embd);
      }
      layer.delta.ba = binder.matrix(name("ssm_ba.weight"), int64_t{2} * config.n_v_heads, config.n_embd);
    }
    experts.push_back(bind_experts(binder, config, i, layer.ffn));
    bind_shared_expert(binder, config, i, layer.ffn);
  }
}

}  // namespace

const Architecture kQwen3Next = {"qwen3next", read, bind};

}  // namespace redlite::model
