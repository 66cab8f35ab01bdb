#include "bench/traffic.h"

#include <algorithm>

#include "base/error.h"

namespace redlite::bench {
namespace {

/// Vectors are decoded to F32 when the model is opened.
template <typename... Vectors>
uint64_t vector_bytes(const Vectors&... vectors) {
  return (uint64_t{0} + ... + (vectors.size() * sizeof(float)));
}

uint64_t vector_bytes_of(const model::LayerWeights& w) {
  return vector_bytes(w.attn_norm, w.ffn_norm, w.attention.q_norm, w.attention.k_norm, w.delta.conv,
                      w.delta.dt, w.delta.a, w.delta.norm);
}

}  // namespace

std::vector<model::Matrix> dense_matrices(const model::Weights& weights) {
  std::vector<model::Matrix> matrices;
  for (const model::LayerWeights& layer : weights.layers) {
    const model::AttentionWeights& a = layer.attention;
    const model::DeltaNetWeights& d = layer.delta;
    const model::FfnWeights& f = layer.ffn;
    for (const model::Matrix& m :
         {a.q, a.k, a.v, a.output, d.qkv, d.z, d.qkvz, d.ba, d.beta, d.alpha, d.output, f.router,
          f.shared_gate, f.shared_up, f.shared_down, f.shared_gate_inp}) {
      if (m) matrices.push_back(m);
    }
  }
  matrices.push_back(weights.output);
  return matrices;
}

Traffic::Traffic(const model::Model& model, int kv_value_bytes) {
  const model::Config& c = model.config();
  const model::Weights& w = model.weights();
  dense_ = vector_bytes(w.output_norm);
  for (const model::LayerWeights& layer : w.layers) dense_ += vector_bytes_of(layer);
  for (const model::Matrix& matrix : dense_matrices(w)) dense_ += matrix.bytes();
  embedding_row_ = w.token_embd.row_bytes();

  const auto n_attention = static_cast<uint64_t>(std::ranges::count(c.layers, model::LayerKind::Attention));
  const uint64_t n_delta = c.layers.size() - n_attention;
  kv_ = n_attention * 2 * static_cast<uint64_t>(c.n_kv_heads) * static_cast<uint64_t>(c.head_dim) *
        static_cast<uint64_t>(kv_value_bytes);
  const uint64_t matrices = static_cast<uint64_t>(c.n_v_heads) * static_cast<uint64_t>(c.state_dim) *
                            static_cast<uint64_t>(c.state_dim);
  const uint64_t inputs =
      static_cast<uint64_t>(std::max(c.conv_kernel - 1, 0)) * static_cast<uint64_t>(c.conv_dim());
  state_ = n_delta * (matrices + inputs) * sizeof(float);

  for (const model::ExpertLayer& layer : model.experts()) experts_.push_back(layer.triplet_bytes());
  used_.assign(experts_.size(), c.n_experts_used);
}

uint64_t Traffic::pass(int position, int n_tokens, std::span<const int> n_distinct) const {
  RL_CHECK(n_distinct.size() == experts_.size(), "{} layers", n_distinct.size());
  const auto before = static_cast<uint64_t>(position), n = static_cast<uint64_t>(n_tokens);
  uint64_t bytes = dense_ + n * embedding_row_ + recurrent_state();
  for (size_t layer = 0; layer < experts_.size(); ++layer)
    bytes += experts_[layer] * static_cast<uint64_t>(n_distinct[layer]);
  return bytes + kv_ * (before + n);  // those of the past are read, those of these tokens written
}

uint64_t Traffic::decode(int position) const {
  return pass(position, 1, used_);
}

}  // namespace redlite::bench
