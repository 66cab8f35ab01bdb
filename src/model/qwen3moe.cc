// Qwen3 MoE (30B-A3B, 235B-A22B): attention without a gate in every layer, no shared expert.
#include "model/architecture.h"

namespace redlite::model {

namespace {

void read(const Keys& keys, Config& config) {
  read_attention(keys, config);
  config.layers.assign(static_cast<size_t>(config.n_layers), LayerKind::Attention);
  read_experts(keys, config);
}

void bind(Binder& binder, const Config& config, Weights& weights, std::vector<ExpertLayer>& experts) {
  bind_ends(binder, config, weights);
  for (int i = 0; i < config.n_layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attn_norm = binder.vector(block_tensor(i, "attn_norm.weight"), config.n_embd);
    layer.attention = bind_attention(binder, config, i);
    layer.ffn_norm = binder.vector(block_tensor(i, "ffn_norm.weight"), config.n_embd);
    experts.push_back(bind_experts(binder, config, i, layer.ffn));
  }
}

}  // namespace

const Architecture kQwen3Moe = {"qwen3moe", read, bind};

}  // namespace redlite::model
