#include "synth/metadata.h"

namespace redlite::synth {

namespace {

uint32_t u32(int value) {
  return static_cast<uint32_t>(value);
}

void add_delta_net(gguf::Writer& writer, const std::string& prefix, const Shape& shape,
                   const Layout& layout) {
  writer.add(prefix + "ssm.conv_kernel", u32(shape.conv_kernel));
  writer.add(prefix + "ssm.state_size", u32(shape.state_dim));
  writer.add(prefix + "ssm.group_count", u32(shape.n_k_heads));
  writer.add(prefix + "ssm.time_step_rank", u32(shape.n_v_heads));
  writer.add(prefix + "ssm.inner_size", u32(shape.value_dim()));
  if (layout.recurrent_layers) {
    std::vector<bool> recurrent;
    recurrent.reserve(static_cast<size_t>(shape.n_layers) + 1);
    for (int i = 0; i < shape.n_layers; ++i) recurrent.push_back(!shape.is_attention(i));
    if (layout.mtp) recurrent.push_back(false);
    writer.add(prefix + "attention.recurrent_layers", gguf::make_array(recurrent));
  } else if (!layout.no_interval) {
    writer.add(prefix + "full_attention_interval", u32(shape.attention_interval));
  }
  if (layout.mtp) writer.add(prefix + "nextn_predict_layers", uint32_t{1});
}

}  // namespace

void add_metadata(gguf::Writer& writer, const Shape& shape, const Layout& layout,
                  const Vocabulary& vocabulary, const Options& options, const Knobs& knobs) {
  writer.add("general.architecture", shape.architecture);
  writer.add("general.type", std::string("model"));
  writer.add("general.name", "Synthetic " + options.preset);
  writer.add(
      "general.description",
      std::string("Random weights in a real model's shape, for benchmarks and tests; it writes no sense."));
  writer.add("general.quantization_version", uint32_t{2});

  const std::string prefix = shape.architecture + ".";
  writer.add(prefix + "block_count", u32(shape.n_layers + (layout.mtp ? 1 : 0)));
  writer.add(prefix + "context_length", u32(shape.context_length));
  writer.add(prefix + "embedding_length", u32(shape.n_embd));
  writer.add(prefix + "feed_forward_length", u32(shape.dense_ff));
  writer.add(prefix + "attention.head_count", u32(shape.n_heads));
  writer.add(prefix + "attention.head_count_kv", u32(shape.n_kv_heads));
  writer.add(prefix + "attention.key_length", u32(shape.head_dim));
  writer.add(prefix + "attention.value_length", u32(shape.head_dim));
  writer.add(prefix + "attention.layer_norm_rms_epsilon", 1e-6f);
  writer.add(prefix + "rope.freq_base", shape.rope_base);
  writer.add(prefix + "rope.dimension_count", u32(shape.rope_dims));
  if (shape.architecture == "qwen35moe") {
    const int32_t pairs = shape.rope_dims / 2;
    writer.add(prefix + "rope.dimension_sections",
               gguf::make_array(std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}));
  }
  writer.add(prefix + "expert_count", u32(shape.n_experts));
  writer.add(prefix + "expert_used_count", u32(shape.n_experts_used));
  writer.add(prefix + "expert_feed_forward_length", u32(shape.expert_ff));
  if (shape.shared_ff > 0) writer.add(prefix + "expert_shared_feed_forward_length", u32(shape.shared_ff));
  if (shape.architecture != "qwen3moe") add_delta_net(writer, prefix, shape, layout);

  for (const auto& [key, value] : vocabulary.metadata) writer.add(key, value);

  writer.add("redlite.synth.preset", options.preset);
  writer.add("redlite.synth.seed", options.seed);
  writer.add("redlite.synth.mix", options.mix.empty() ? std::string("simple") : options.mix);
  if (!options.types.empty()) writer.add("redlite.synth.types", options.types);
  if (!options.layout.empty()) writer.add("redlite.synth.layout", options.layout);
  for (const auto& [name, value] : knob_values(knobs))
    writer.add("redlite.synth." + std::string(name), value);
}

}  // namespace redlite::synth
