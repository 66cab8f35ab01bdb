#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::model {

/// What mixes tokens in a layer.
enum class LayerKind : uint8_t { Attention, DeltaNet };

/// Which K head a V head of a DeltaNet layer uses: qwen3next h / (n_v / n_k), qwen35moe h % n_k.
enum class HeadPairing : uint8_t { Grouped, Interleaved };

/// The sizes and switches of a model, read from metadata and checked against each other. Everything the
/// runners branch on is here; none of them looks at the architecture's name.
struct Config {
  std::string architecture;  ///< GGUF general.architecture
  int n_layers = 0;          ///< trunk layers, MTP blocks left out
  int n_embd = 0;
  int n_vocab = 0;
  int context_length = 0;
  float rms_eps = 0;
  std::vector<LayerKind> layers;

  // Attention layers.
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;   ///< of q, k and v alike
  int rope_dims = 0;  ///< NEOX-style rotation of the first rope_dims values of a head
  float rope_base = 0;
  bool gated_attention = false;  ///< attn_q holds [q, gate] per head

  // DeltaNet layers.
  int conv_kernel = 0;
  int n_k_heads = 0;
  int n_v_heads = 0;
  int state_dim = 0;  ///< of a K head and of a V head
  HeadPairing pairing = HeadPairing::Grouped;

  // Mixture of experts, in every layer.
  int n_experts = 0;
  int n_experts_used = 0;
  int expert_ff = 0;
  int shared_ff = 0;  ///< 0: no shared expert
  float expert_weights_scale = 1;

  int key_dim() const { return n_k_heads * state_dim; }
  int value_dim() const { return n_v_heads * state_dim; }
  int conv_dim() const { return 2 * key_dim() + value_dim(); }
  int k_head_of(int v_head) const {
    return pairing == HeadPairing::Grouped ? v_head / (n_v_heads / n_k_heads) : v_head % n_k_heads;
  }
};

/// Reads and checks the configuration of a supported architecture (qwen3next, qwen3moe, qwen35moe); throws an
/// Error that names the key and the file.
Config read_config(const gguf::File& file);

}  // namespace redlite::model
