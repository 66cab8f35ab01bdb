#include "synth/shape.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/quote.h"
#include "synth/split.h"

namespace redlite::synth {

namespace {

struct Preset {
  std::string_view name;
  Shape shape;
};

// The published models' sizes are those of their configuration files.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = [] {
    std::vector<Preset> all;
    // Every row is a multiple of 256 values, so that every type fits every role.
    all.push_back({"tiny",
                   {.architecture = "qwen3next",
                    .n_layers = 4,
                    .n_embd = 256,
                    .n_vocab = 1024,
                    .context_length = 4096,
                    .n_heads = 4,
                    .n_kv_heads = 2,
                    .head_dim = 64,
                    .rope_dims = 16,
                    .n_k_heads = 2,
                    .n_v_heads = 4,
                    .state_dim = 64,
                    .n_experts = 16,
                    .n_experts_used = 4,
                    .expert_ff = 256,
                    .shared_ff = 256,
                    .dense_ff = 1024,
                    .first_special = 1021}});
    // The experts of an 80B in number and use, a fortieth of it in size.
    all.push_back({"small",
                   {.architecture = "qwen3next",
                    .n_layers = 8,
                    .n_embd = 1024,
                    .n_vocab = 16384,
                    .context_length = 32768,
                    .n_heads = 8,
                    .n_kv_heads = 2,
                    .head_dim = 128,
                    .rope_dims = 32,
                    .n_k_heads = 8,
                    .n_v_heads = 16,
                    .state_dim = 128,
                    .n_experts = 512,
                    .n_experts_used = 10,
                    .expert_ff = 256,
                    .shared_ff = 256,
                    .dense_ff = 2560,
                    .first_special = 16381}});
    const Shape next{.architecture = "qwen3next",
                     .n_layers = 48,
                     .n_embd = 2048,
                     .n_vocab = 151936,
                     .context_length = 262144,
                     .n_heads = 16,
                     .n_kv_heads = 2,
                     .head_dim = 256,
                     .rope_dims = 64,
                     .rope_base = 1e7f,
                     .n_k_heads = 16,
                     .n_v_heads = 32,
                     .state_dim = 128,
                     .n_experts = 512,
                     .n_experts_used = 10,
                     .expert_ff = 512,
                     .shared_ff = 512,
                     .dense_ff = 5120,
                     .first_special = 151643};
    all.push_back({"qwen3-next-80b", next});
    Shape coder = next;
    coder.rope_base = 5e6f;
    all.push_back({"qwen3-coder-next", coder});
    all.push_back({"qwen3-30b-a3b",
                   {.architecture = "qwen3moe",
                    .n_layers = 48,
                    .n_embd = 2048,
                    .n_vocab = 151936,
                    .context_length = 40960,
                    .attention_interval = 1,
                    .n_heads = 32,
                    .n_kv_heads = 4,
                    .head_dim = 128,
                    .rope_dims = 128,
                    .rope_base = 1e6f,
                    .n_experts = 128,
                    .n_experts_used = 8,
                    .expert_ff = 768,
                    .dense_ff = 6144,
                    .first_special = 151643}});
    all.push_back({"qwen35-35b-a3b",
                   {.architecture = "qwen35moe",
                    .n_layers = 40,
                    .n_embd = 2048,
                    .n_vocab = 248320,
                    .context_length = 262144,
                    .n_heads = 16,
                    .n_kv_heads = 2,
                    .head_dim = 256,
                    .rope_dims = 64,
                    .rope_base = 1e7f,
                    .n_k_heads = 16,
                    .n_v_heads = 32,
                    .state_dim = 128,
                    .n_experts = 256,
                    .n_experts_used = 8,
                    .expert_ff = 512,
                    .shared_ff = 512,
                    .dense_ff = 4096,
                    .first_special = 248044}});
    return all;
  }();
  return table;
}

struct LayoutFlag {
  std::string_view name;
  bool Layout::*flag;
};
constexpr std::array kLayoutFlags{
    LayoutFlag{"ssm-in", &Layout::ssm_in},
    LayoutFlag{"fused-gate-up", &Layout::fused_gate_up},
    LayoutFlag{"tied-output", &Layout::tied_output},
    LayoutFlag{"recurrent-layers", &Layout::recurrent_layers},
    LayoutFlag{"no-interval", &Layout::no_interval},
    LayoutFlag{"mtp", &Layout::mtp},
};

void set_architecture(Shape& shape, std::string_view preset, std::string_view architecture) {
  if (architecture == shape.architecture) return;
  if (preset != "tiny" && preset != "small")
    fail("preset {} is a {} model; only tiny and small come in other architectures", preset,
         shape.architecture);
  if (architecture == "qwen3moe") {  // attention everywhere, whole heads rotated, no shared expert
    shape.attention_interval = 1;
    shape.rope_dims = shape.head_dim;
    shape.shared_ff = 0;
  } else if (architecture != "qwen35moe") {
    fail("architecture {} is unknown; there are qwen3next, qwen35moe and qwen3moe", quote(architecture));
  }
  shape.architecture = architecture;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  names.reserve(presets().size());
  for (const Preset& p : presets()) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  names.reserve(kLayoutFlags.size());
  for (const LayoutFlag& f : kLayoutFlags) names.emplace_back(f.name);
  return names;
}

Shape preset_shape(std::string_view preset, std::string_view architecture) {
  for (const Preset& p : presets()) {
    if (p.name != preset) continue;
    Shape shape = p.shape;
    if (!architecture.empty()) set_architecture(shape, preset, architecture);
    return shape;
  }
  fail("preset {} is unknown; there are {}", quote(preset), fmt::join(preset_names(), ", "));
}

Layout parse_layout(std::string_view text) {
  Layout layout;
  for (const std::string_view name : split(text, ',')) {
    const auto* flag = std::find_if(kLayoutFlags.begin(), kLayoutFlags.end(),
                                    [&](const LayoutFlag& f) { return f.name == name; });
    if (flag == kLayoutFlags.end())
      fail("layout {} is unknown; there are {}", quote(name), fmt::join(layout_names(), ", "));
    layout.*(flag->flag) = true;
  }
  return layout;
}

void check_layout(const Shape& shape, const Layout& layout) {
  if (layout.ssm_in && shape.architecture != "qwen3next") fail("layout ssm-in exists in qwen3next only");
  const bool hybrid = shape.architecture != "qwen3moe";
  if ((layout.recurrent_layers || layout.no_interval || layout.mtp) && !hybrid)
    fail("layouts recurrent-layers, no-interval and mtp do not exist in qwen3moe");
  if (layout.recurrent_layers && layout.no_interval)
    fail("layouts recurrent-layers and no-interval exclude each other");
}

}  // namespace redlite::synth
