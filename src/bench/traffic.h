#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace redlite::bench {

/// The matrices that every forward pass reads whole: mixers, routers, shared experts and the output, but not
/// the embedding (unless it is the output, too).
std::vector<model::Matrix> dense_matrices(const model::Weights& weights);

/// What a forward pass cannot but move between memory and processor, in bytes: each weight it needs once, the
/// recurrent states once in and once out, keys and values of all positions before it once. Activations are
/// left out; they stay in the caches. Divided by the memory's bandwidth it is the least time a pass can take,
/// the "floor" that speeds are compared with.
class Traffic {
 public:
  /// `kv_value_bytes`: of a value in the attention cache (4 for F32, 2 for F16).
  Traffic(const model::Model& model, int kv_value_bytes);

  /// dense_matrices() and the norms and other vectors.
  uint64_t dense() const { return dense_; }
  /// One expert of a layer: gate, up and down.
  uint64_t expert(int layer) const { return experts_[static_cast<size_t>(layer)]; }
  /// DeltaNet matrices and convolution inputs of all layers, read and written.
  uint64_t recurrent_state() const { return 2 * state_; }
  /// Keys and values of one position in all layers.
  uint64_t kv_per_position() const { return kv_; }

  /// One pass over `n_tokens` tokens (a decoded token, or a chunk of a prompt) that follow `position` others
  /// and select n_distinct[layer] experts in each layer. Includes the tokens' rows of the embedding.
  uint64_t pass(int position, int n_tokens, std::span<const int> n_distinct) const;
  /// Of a token decoded after `position` others.
  uint64_t decode(int position) const;

 private:
  uint64_t dense_ = 0;
  uint64_t embedding_row_ = 0;
  uint64_t state_ = 0;
  uint64_t kv_ = 0;
  std::vector<uint64_t> experts_;  ///< by layer
  std::vector<int> used_;          ///< by layer: experts that a token selects
};

}  // namespace redlite::bench
