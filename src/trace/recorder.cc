#include "trace/recorder.h"

#include <algorithm>

#include "base/error.h"
#include "cpu/kernels.h"
#include "experts/layout.h"
#include "model/router.h"

namespace redlite::trace {
// All but the other rows of an embedding that is not also the output.
uint64_t dense_bytes_of_a_token(const model::Model& model) {
  const model::Weights& w = model.weights();
  const bool tied = w.output.data == w.token_embd.data;
  return model.dense_bytes() - (tied ? 0 : w.token_embd.bytes() - w.token_embd.row_bytes());
}

std::vector<LayerSizes> layer_sizes(const model::Model& model) {
  std::vector<LayerSizes> sizes;
  for (const model::ExpertLayer& layer : model.experts()) {
    LayerSizes size{layer.triplet_bytes(), 0};
    for (int e = 0; e < model.config().n_experts; ++e)
      size.slot_bytes = std::max<uint64_t>(size.slot_bytes, experts::place(layer, e).slot_bytes);
    sizes.push_back(size);
  }
  return sizes;
}

Recorder::Recorder(const model::Model& model) : model_(model) {
  const model::Config& c = model.config();
  trace_.model = model.file().get_string("general.name").value_or("");
  trace_.n_layers = c.n_layers;
  trace_.n_experts = c.n_experts;
  trace_.n_used = c.n_experts_used;
  trace_.n_predicted = std::min(2 * c.n_experts_used, c.n_experts);
  trace_.dense_bytes = dense_bytes_of_a_token(model);
  trace_.layers = layer_sizes(model);
  logits_.resize(static_cast<size_t>(c.n_experts));
}

model::Tap Recorder::tap() {
  return [this](model::Stage stage, int layer, int, int, std::span<const float> values) {
    see(stage, layer, values);
  };
}

void Recorder::see(model::Stage stage, int layer, std::span<const float> values) {
  const model::Config& c = model_.config();
  const size_t used = static_cast<size_t>(trace_.n_used);
  const size_t layers = static_cast<size_t>(trace_.n_layers);
  if (stage == model::Stage::FfnInput) {
    if (layer == 0) {
      first_token_ = n_tokens_;
      const size_t n = values.size() / static_cast<size_t>(c.n_embd);
      n_tokens_ += n;
      trace_.chunks.push_back(static_cast<uint32_t>(n));
      trace_.selected.resize(n_tokens_ * layers * used);
      trace_.predicted.resize(n_tokens_ * (layers - 1) * static_cast<size_t>(trace_.n_predicted));
    }
    if (layer + 1 < c.n_layers) predict(layer + 1, first_token_, values);
  } else if (stage == model::Stage::ExpertIds) {
    RL_CHECK(values.size() == (n_tokens_ - first_token_) * used, "{} selections", values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t at = ((first_token_ + i / used) * layers + static_cast<size_t>(layer)) * used + i % used;
      trace_.selected[at] = static_cast<uint16_t>(values[i]);
    }
  }
}

void Recorder::predict(int layer, size_t first_token, std::span<const float> inputs) {
  const model::Config& c = model_.config();
  const size_t embd = static_cast<size_t>(c.n_embd), experts = static_cast<size_t>(c.n_experts);
  const size_t n = inputs.size() / embd;
  const auto width = static_cast<size_t>(trace_.n_predicted);
  logits_.resize(n * experts);
  cpu::best_kernels().router(model_.weights().layers[static_cast<size_t>(layer)].ffn.router, 0, c.n_experts,
                             inputs.data(), embd, static_cast<int>(n), logits_.data(), experts);
  std::vector<int32_t> ids(width);
  std::vector<float> weights(width);
  for (size_t t = 0; t < n; ++t) {
    model::select_experts(std::span(logits_).subspan(t * experts, experts), 1, ids, weights);
    const size_t at =
        ((first_token + t) * static_cast<size_t>(trace_.n_layers - 1) + static_cast<size_t>(layer - 1)) *
        width;
    std::transform(ids.begin(), ids.end(), trace_.predicted.begin() + static_cast<std::ptrdiff_t>(at),
                   [](int32_t id) { return static_cast<uint16_t>(id); });
  }
}

Trace Recorder::finish(std::span<const model::Token> tokens) const {
  RL_CHECK(tokens.size() >= n_tokens_, "{} tokens went through, {} are known", n_tokens_, tokens.size());
  Trace trace = trace_;
  trace.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_tokens_));
  return trace;
}

}  // namespace redlite::trace
