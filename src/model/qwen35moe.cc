// Qwen3.5 / 3.6 MoE, text only: as Qwen3-Next, but V heads are stored interleaved (V head h uses K head
// h % n_k), beta and alpha are separate, and RoPE is interleaved multi-section.
#include <fmt/format.h>

#include <numeric>

#include "model/architecture.h"

namespace redlite::model {

namespace {

// Each pair of rotated values belongs to one of four position streams: time, height, width (interleaved by
// three) and a fourth. Text gives the first three the token's position, which is plain RoPE, and the fourth
// 0: sections that leave a pair to the fourth stream would not rotate it, and no published file has them.
void check_rope_sections(const Keys& keys, int rope_dims) {
  constexpr std::string_view kKey = "rope.dimension_sections";
  const auto sections = keys.find_integers(kKey);
  if (!sections) keys.reject(kKey, "is missing");
  if (sections->size() != 4) keys.reject(kKey, "has to hold 4 numbers");
  for (const uint64_t n : *sections)
    if (n > static_cast<uint64_t>(rope_dims)) keys.reject(kKey, fmt::format("{} is too large", n));
  const uint64_t total = std::accumulate(sections->begin(), sections->end(), uint64_t{0});
  if (total == 0) keys.reject(kKey, "are all zero");
  for (uint64_t pair = 0; pair < static_cast<uint64_t>(rope_dims / 2); ++pair) {
    const uint64_t sector = pair % total;
    if (sector >= 3 * (*sections)[sector % 3])
      keys.reject(kKey,
                  fmt::format("[{}] leave pair {} of {} without a text position, which is not supported",
                              fmt::join(*sections, ", "), pair, rope_dims / 2));
  }
}

void read(const Keys& keys, Config& config) {
  read_attention(keys, config);
  check_rope_sections(keys, config.rope_dims);
  config.gated_attention = true;
  read_layer_kinds(keys, config);
  read_delta_net(keys, config);
  config.pairing = HeadPairing::Interleaved;
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
      layer.delta.qkv = binder.matrix(name("attn_qkv.weight"), config.conv_dim(), config.n_embd);
      layer.delta.z = binder.matrix(name("attn_gate.weight"), config.value_dim(), config.n_embd);
      layer.delta.beta = binder.matrix(name("ssm_beta.weight"), config.n_v_heads, config.n_embd);
      layer.delta.alpha = binder.matrix(name("ssm_alpha.weight"), config.n_v_heads, config.n_embd);
    }
    experts.push_back(bind_experts(binder, config, i, layer.ffn));
    bind_shared_expert(binder, config, i, layer.ffn);
  }
}

}  // namespace

const Architecture kQwen35Moe = {"qwen35moe", read, bind};

}  // namespace redlite::model
