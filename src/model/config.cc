#include "model/config.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/quote.h"
#include "model/architecture.h"

namespace redlite::model {

namespace {

constexpr int kMaxLayers = 1024;

// Products of two sizes are taken in 64 bits and must fit an int: every row count in the program is one.
void require_int(const Keys& keys, std::string_view what, int64_t value) {
  if (value > std::numeric_limits<int>::max())
    fail("{}: {} would be {}; the metadata is damaged", keys.file().path(), what, value);
}

// Rotations other than the plain one are refused: computing without them would be quietly wrong.
void refuse_rope_scaling(const Keys& keys) {
  const std::string type = keys.find_string("rope.scaling.type").value_or("linear");
  if (type != "none" && type != "linear")
    keys.reject("rope.scaling.type",
                fmt::format("{} is not supported; use a file without context extension", quote(type)));
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const double factor = keys.find_number(key).value_or(1);
    if (type != "none" && factor != 0 && factor != 1)
      keys.reject(key, fmt::format("{} is not supported; use a file without context extension", factor));
  }
  const double attention_factor = keys.find_number("rope.scaling.attn_factor").value_or(1);
  if (attention_factor != 1)
    keys.reject("rope.scaling.attn_factor", fmt::format("{} is not supported", attention_factor));
}

int vocabulary_size(const Keys& keys) {
  const gguf::File& file = keys.file();
  const gguf::TensorInfo* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() < 2)
    fail("{}: tensor token_embd.weight is missing or not a matrix", file.path());
  const uint64_t size = embedding->shape[1];
  if (size > Keys::kMaxCount) fail("{}: a vocabulary of {} tokens is too large", file.path(), size);
  if (const gguf::Value* tokens = file.find_value("tokenizer.ggml.tokens")) {
    const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(tokens);
    if (array && (*array)->size() != size)
      fail("{}: token_embd.weight has {} rows, but tokenizer.ggml.tokens has {} tokens", file.path(), size,
           (*array)->size());
  }
  return static_cast<int>(size);
}

int context_length(const Keys& keys) {
  const std::optional<uint64_t> value = keys.file().get_uint(keys.name("context_length"));
  if (!value) keys.reject("context_length", "is missing");
  if (*value < 1 || *value > std::numeric_limits<int>::max())
    keys.reject("context_length", fmt::format("{} is out of range", *value));
  return static_cast<int>(*value);
}

}  // namespace

int trunk_layers(const Keys& keys) {
  const int blocks = keys.count("block_count");
  if (blocks > kMaxLayers)
    keys.reject("block_count", fmt::format("{} is more than the {} supported", blocks, kMaxLayers));
  const std::vector<uint64_t> mtp =
      keys.find_integers("nextn_predict_layers").value_or(std::vector<uint64_t>{0});
  if (mtp.size() != 1 || mtp[0] >= static_cast<uint64_t>(blocks))
    keys.reject("nextn_predict_layers", fmt::format("has to be one number below block_count ({})", blocks));
  return blocks - static_cast<int>(mtp[0]);
}

void read_attention(const Keys& keys, Config& config) {
  config.n_heads = keys.count("attention.head_count");
  config.n_kv_heads = keys.find_count("attention.head_count_kv").value_or(config.n_heads);
  if (config.n_heads % config.n_kv_heads != 0)
    keys.reject("attention.head_count_kv",
                fmt::format("{} does not divide the {} heads", config.n_kv_heads, config.n_heads));
  const int default_head_dim = config.n_embd / config.n_heads;
  config.head_dim = keys.find_count("attention.key_length").value_or(default_head_dim);
  if (config.head_dim < 1) keys.reject("attention.key_length", "is missing");
  const int value_dim = keys.find_count("attention.value_length").value_or(default_head_dim);
  if (value_dim != config.head_dim)
    keys.reject("attention.value_length", fmt::format("{} differs from key_length {}, which is not supported",
                                                      value_dim, config.head_dim));
  require_int(keys, "the width of attention", int64_t{2} * config.n_heads * config.head_dim);
  require_int(keys, "the width of attention",
              (int64_t{2} * config.n_heads + int64_t{2} * config.n_kv_heads) * config.head_dim);

  config.rope_dims = keys.find_count("rope.dimension_count").value_or(config.head_dim);
  if (config.rope_dims % 2 != 0 || config.rope_dims > config.head_dim)
    keys.reject("rope.dimension_count", fmt::format("{} has to be even and at most the head's {}",
                                                    config.rope_dims, config.head_dim));
  config.rope_base = static_cast<float>(keys.find_number("rope.freq_base").value_or(10000));
  if (!(config.rope_base > 0) || !std::isfinite(config.rope_base))
    keys.reject("rope.freq_base", "has to be a positive number");
  refuse_rope_scaling(keys);
  if (!keys.file().get_bool(keys.name("attention.causal")).value_or(true))
    keys.reject("attention.causal", "false is not supported; this is not a text generator");
}

void read_delta_net(const Keys& keys, Config& config) {
  config.conv_kernel = keys.count("ssm.conv_kernel");
  config.state_dim = keys.count("ssm.state_size");
  config.n_k_heads = keys.count("ssm.group_count");
  config.n_v_heads = keys.count("ssm.time_step_rank");
  if (config.n_v_heads % config.n_k_heads != 0)
    keys.reject("ssm.group_count",
                fmt::format("{} K heads do not divide the {} V heads", config.n_k_heads, config.n_v_heads));
  const int64_t value_dim = int64_t{config.n_v_heads} * config.state_dim;
  const int64_t key_dim = int64_t{config.n_k_heads} * config.state_dim;
  require_int(keys, "the width of DeltaNet", 2 * key_dim + 2 * value_dim);
  require_int(keys, "the state of DeltaNet", value_dim * config.state_dim);
  const int inner = keys.count("ssm.inner_size");
  if (inner != value_dim)
    keys.reject("ssm.inner_size", fmt::format("{} has to be time_step_rank {} x state_size {}", inner,
                                              config.n_v_heads, config.state_dim));
}

void read_layer_kinds(const Keys& keys, Config& config) {
  config.layers.assign(static_cast<size_t>(config.n_layers), LayerKind::DeltaNet);
  if (const auto recurrent = keys.find_integers("attention.recurrent_layers")) {
    // One flag for each block, MTP blocks included, or one for all.
    const size_t blocks = static_cast<size_t>(keys.count("block_count"));
    if (recurrent->size() != 1 && recurrent->size() != blocks)
      keys.reject("attention.recurrent_layers",
                  fmt::format("has {} values for {} blocks", recurrent->size(), blocks));
    for (size_t i = 0; i < config.layers.size(); ++i)
      if ((*recurrent)[recurrent->size() == 1 ? 0 : i] == 0) config.layers[i] = LayerKind::Attention;
    return;
  }
  const size_t interval = static_cast<size_t>(keys.find_count("full_attention_interval").value_or(4));
  for (size_t i = interval - 1; i < config.layers.size(); i += interval)
    config.layers[i] = LayerKind::Attention;
}

void read_experts(const Keys& keys, Config& config) {
  config.n_experts = keys.count("expert_count");
  config.n_experts_used = keys.count("expert_used_count");
  if (config.n_experts_used > config.n_experts)
    keys.reject("expert_used_count",
                fmt::format("{} is more than the {} experts", config.n_experts_used, config.n_experts));
  const std::optional<int> ff = keys.find_count("expert_feed_forward_length");
  config.expert_ff = ff ? *ff : keys.count("feed_forward_length") / config.n_experts_used;
  if (config.expert_ff < 1) keys.reject("expert_feed_forward_length", "is missing");
  require_int(keys, "the width of an expert", int64_t{2} * config.expert_ff);
  const std::vector<uint64_t> groups =
      keys.find_integers("expert_group_count").value_or(std::vector<uint64_t>{1});
  for (const uint64_t n : groups)
    if (n > 1) keys.reject("expert_group_count", fmt::format("{} expert groups are not supported", n));
  const double scale = keys.find_number("expert_weights_scale").value_or(0);
  config.expert_weights_scale = scale == 0 ? 1.0f : static_cast<float>(scale);
}

void read_shared_expert(const Keys& keys, Config& config) {
  const std::optional<int> ff = keys.find_count("expert_shared_feed_forward_length");
  config.shared_ff = ff ? *ff : keys.count("feed_forward_length");
}

Config read_config(const gguf::File& file) {
  const Architecture& architecture = find_architecture(file);
  const Keys keys(file, architecture.name);
  Config config;
  config.architecture = architecture.name;
  config.n_layers = trunk_layers(keys);
  config.n_embd = keys.count("embedding_length");
  config.n_vocab = vocabulary_size(keys);
  config.context_length = context_length(keys);
  config.rms_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon"));
  if (!(config.rms_eps >= 0 && config.rms_eps < 1))
    keys.reject("attention.layer_norm_rms_epsilon", fmt::format("{} is out of range", config.rms_eps));
  architecture.read_config(keys, config);
  return config;
}

}  // namespace redlite::model
