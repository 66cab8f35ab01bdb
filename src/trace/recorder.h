#pragma once

#include <span>
#include <vector>

#include "model/model.h"
#include "model/runner.h"
#include "trace/trace.h"

namespace redlite::trace {

/// Records a trace while a runner computes, from what its tap shows. Predictions are computed here, for every
/// token, by the definition of the router: the runner's speed suffers.
class Recorder {
 public:
  explicit Recorder(const model::Model& model);

  /// For Runner::set_tap; valid while this object lives and stays where it is.
  model::Tap tap();

  /// The trace of all forward passes so far; `tokens` begins with those that went through them.
  Trace finish(std::span<const model::Token> tokens) const;

 private:
  void see(model::Stage stage, int layer, std::span<const float> values);
  void predict(int layer, size_t first_token, std::span<const float> inputs);

  const model::Model& model_;
  Trace trace_;             ///< without tokens
  size_t first_token_ = 0;  ///< of the chunk being computed
  size_t n_tokens_ = 0;
  std::vector<float> logits_;
};

/// Bytes of dense weights that one token reads.
uint64_t dense_bytes_of_a_token(const model::Model& model);

/// The size of a model's experts, by layer.
std::vector<LayerSizes> layer_sizes(const model::Model& model);

}  // namespace redlite::trace
