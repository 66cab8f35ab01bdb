#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace redlite::trace {

/// What a layer's experts take.
struct LayerSizes {
  uint64_t triplet_bytes = 0;  ///< one expert's three matrices
  uint64_t slot_bytes = 0;     ///< the largest slot that one of them needs (experts/layout.h)
  bool operator==(const LayerSizes&) const = default;
};

/// Which experts a run of a model used: for every token and layer the router's choice, and what the layer
/// before would have predicted. Everything that a cache's misses depend on, so that they can be replayed
/// without the model.
struct Trace {
  std::string model;  ///< the model's name, for people
  int n_layers = 0;
  int n_experts = 0;
  int n_used = 0;       ///< experts of a token in a layer
  int n_predicted = 0;  ///< predictions for a token and layer, at least n_used unless there are fewer experts
  uint64_t dense_bytes = 0;  ///< what a token reads besides routed experts
  std::vector<LayerSizes> layers;

  std::vector<int32_t> tokens;
  std::vector<uint32_t> chunks;     ///< tokens of each forward pass; 1: decode
  std::vector<uint16_t> selected;   ///< [token][layer][n_used], best first
  std::vector<uint16_t> predicted;  ///< [token][layer - 1][n_predicted], best first: layer l's router applied
                                    ///< to what layer l - 1's router saw

  size_t n_tokens() const { return tokens.size(); }
  std::span<const uint16_t> experts(size_t token, int layer) const {
    return std::span(selected).subspan((token * n_layers + layer) * n_used, n_used);
  }
  /// What was predicted for a layer, which is not the first.
  std::span<const uint16_t> prediction(size_t token, int layer) const {
    return std::span(predicted).subspan((token * (n_layers - 1) + layer - 1) * n_predicted, n_predicted);
  }

  bool operator==(const Trace&) const = default;
};

/// The file's bytes (docs/formats.md). The trace must be consistent.
std::vector<std::byte> encode(const Trace& trace);

/// A trace from any bytes. Throws Error naming `path` and what is wrong; a trace that is returned is
/// consistent: ids lie below n_experts and are distinct within a token and layer, the lengths of all arrays
/// fit together.
Trace decode(const std::string& path, std::span<const std::byte> bytes);

void write_trace(const std::string& path, const Trace& trace);
Trace read_trace(const std::string& path);

}  // namespace redlite::trace
