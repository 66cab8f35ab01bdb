#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redlite::synth {

/// The sizes of a model to write.
struct Shape {
  std::string architecture;  ///< qwen3next, qwen35moe or qwen3moe
  int n_layers = 0;
  int n_embd = 0;
  int n_vocab = 0;
  int context_length = 0;
  int attention_interval = 4;  ///< layer i is attention when (i + 1) % interval == 0; 1: every layer

  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int rope_dims = 0;
  float rope_base = 1e7f;

  int n_k_heads = 0;
  int n_v_heads = 0;
  int state_dim = 0;
  int conv_kernel = 4;

  int n_experts = 0;
  int n_experts_used = 0;
  int expert_ff = 0;
  int shared_ff = 0;  ///< 0: no shared expert
  int dense_ff = 0;   ///< the metadata's feed_forward_length; no layer uses it

  int first_special = 0;  ///< id of <|endoftext|> in the synthetic vocabulary

  bool is_attention(int layer) const { return (layer + 1) % attention_interval == 0; }
  bool gated_attention() const { return architecture != "qwen3moe"; }
  int key_dim() const { return n_k_heads * state_dim; }
  int value_dim() const { return n_v_heads * state_dim; }
};

/// What a file may have differently from the usual layout of its architecture.
struct Layout {
  bool ssm_in = false;            ///< older qwen3next: q, k, v and z of a DeltaNet layer in one tensor
  bool fused_gate_up = false;     ///< ffn_gate_up_exps instead of gate and up
  bool tied_output = false;       ///< no output tensor
  bool recurrent_layers = false;  ///< attention.recurrent_layers instead of full_attention_interval
  bool no_interval = false;       ///< neither of them
  bool mtp = false;               ///< one MTP block after the trunk
};

std::vector<std::string> preset_names();
std::vector<std::string> layout_names();

/// A preset's shape. `architecture` may change that of the presets tiny and small; empty: the preset's own.
/// Throws Error naming what there is.
Shape preset_shape(std::string_view preset, std::string_view architecture = {});

/// "ssm-in,mtp" and the like; empty: the usual layout. Throws Error naming what there is.
Layout parse_layout(std::string_view text);

/// Throws Error when an architecture has no such layout.
void check_layout(const Shape& shape, const Layout& layout);

}  // namespace redlite::synth
