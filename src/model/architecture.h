#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/keys.h"
#include "model/weights.h"

namespace redlite::model {

/// What a supported architecture has to know: how its metadata fills Config, and which tensors are which
/// weights. The only place where an architecture's name matters.
struct Architecture {
  std::string_view name;
  void (*read_config)(const Keys& keys, Config& config);
  void (*bind)(Binder& binder, const Config& config, Weights& weights, std::vector<ExpertLayer>& experts);
};

extern const Architecture kQwen3Next;
extern const Architecture kQwen35Moe;
extern const Architecture kQwen3Moe;

/// By general.architecture; throws an Error that lists the supported ones.
const Architecture& find_architecture(const gguf::File& file);

// Parts of a configuration that architectures share.

/// Blocks that are the model proper, without the MTP blocks that block_count includes.
int trunk_layers(const Keys& keys);
void read_attention(const Keys& keys, Config& config);
void read_delta_net(const Keys& keys, Config& config);
/// Which layers are DeltaNet: attention.recurrent_layers, or else every layer but each
/// full_attention_interval-th (default 4).
void read_layer_kinds(const Keys& keys, Config& config);
void read_experts(const Keys& keys, Config& config);
void read_shared_expert(const Keys& keys, Config& config);

// Parts of a model's tensors that architectures share; `layer` is the block's number.

void bind_ends(Binder& binder, const Config& config, Weights& weights);
AttentionWeights bind_attention(Binder& binder, const Config& config, int layer);
/// All but the input projections, which differ.
DeltaNetWeights bind_delta_net_core(Binder& binder, const Config& config, int layer);
ExpertLayer bind_experts(Binder& binder, const Config& config, int layer, FfnWeights& ffn);
void bind_shared_expert(Binder& binder, const Config& config, int layer, FfnWeights& ffn);

}  // namespace redlite::model
