#include "reference/reference_runner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/router.h"
#include "quant/decode.h"
#include "reference/decoded.h"
#include "reference/math.h"

namespace redlite::reference {

using model::Config;
using model::LayerKind;
using model::Stage;
using model::Token;

namespace {

// Decoded weights are kept in memory up to this; larger models decode anew for each token.
constexpr size_t kDecodedLimit = size_t{1} << 30;

/// What a layer remembers of the tokens before.
struct LayerState {
  Vec keys, values;  ///< attention: [n_tokens][n_kv_heads * head_dim]; keys are rotated
  Vec conv;   ///< DeltaNet: the last conv_kernel - 1 inputs of the convolution, oldest first [..][conv_dim]
  Vec delta;  ///< DeltaNet: [n_v_heads][state_dim][state_dim]
};

std::span<double> part(Vec& v, size_t index, size_t width) {
  return std::span(v).subspan(index * width, width);
}
std::span<const double> part(const Vec& v, size_t index, size_t width) {
  return std::span(v).subspan(index * width, width);
}

}  // namespace

struct ReferenceRunner::Impl {
  Impl(const model::Model& m, int context) : model(m), capacity(context), weights(kDecodedLimit) { reset(); }

  void reset() {
    const Config& c = model.config();
    position = 0;
    layers.assign(static_cast<size_t>(c.n_layers), {});
    for (size_t l = 0; l < layers.size(); ++l) {
      if (c.layers[l] != LayerKind::DeltaNet) continue;
      layers[l].conv.assign(static_cast<size_t>(c.conv_kernel - 1) * static_cast<size_t>(c.conv_dim()), 0.0);
      layers[l].delta.assign(static_cast<size_t>(c.n_v_heads) * static_cast<size_t>(c.state_dim) *
                                 static_cast<size_t>(c.state_dim),
                             0.0);
    }
  }

  void forward_token(Token token, const model::Tap& tap, const Override& replace, std::vector<float>* out);

  const model::Model& model;
  int capacity;
  int position = 0;
  std::vector<LayerState> layers;
  DecodedMatrices weights;
  std::vector<float> logits;  ///< of the last call
};

// The whole model for one token. Writes logits[n_vocab] if asked for.
void ReferenceRunner::Impl::forward_token(Token token, const model::Tap& tap, const Override& replace,
                                          std::vector<float>* out) {
  const Config& c = model.config();
  const model::Weights& w = model.weights();
  const double eps = c.rms_eps;
  const auto show = [&](Stage stage, int layer, const auto& values) {
    if (!tap) return;
    const std::vector<float> rounded(values.begin(), values.end());
    tap(stage, layer, position, static_cast<int>(rounded.size()), rounded);
  };
  const auto pass = [&](Stage stage, int layer, Vec& values) {
    show(stage, layer, values);
    if (replace) replace(stage, layer, position, values);
  };

  // x[n_embd], the residual stream, begins as the token's row of the embedding.
  std::vector<float> row(static_cast<size_t>(c.n_embd));
  quant::decode(w.token_embd.type, w.token_embd.row(token), row.data(), row.size());
  Vec x(row.begin(), row.end());
  pass(Stage::Embedding, -1, x);

  for (int l = 0; l < c.n_layers; ++l) {
    const model::LayerWeights& layer = w.layers[static_cast<size_t>(l)];
    LayerState& state = layers[static_cast<size_t>(l)];

    Vec h = rms_norm(x, layer.attn_norm, eps);  // h[n_embd]
    pass(Stage::MixerInput, l, h);

    Vec mixed;  // mixed[n_embd]
    if (c.layers[static_cast<size_t>(l)] == LayerKind::Attention) {
      const model::AttentionWeights& a = layer.attention;
      const size_t dim = static_cast<size_t>(c.head_dim);
      const size_t n_heads = static_cast<size_t>(c.n_heads), n_kv = static_cast<size_t>(c.n_kv_heads);

      // Queries, keys and values of this token; q and k are normalised per head, then rotated.
      const Vec q_all = weights.multiply(a.q, h);  // [n_heads][dim], gated: [n_heads][q: dim, gate: dim]
      Vec q(n_heads * dim), gate;
      if (c.gated_attention) {
        gate.resize(n_heads * dim);
        for (size_t i = 0; i < n_heads; ++i) {
          std::ranges::copy(part(q_all, 2 * i, dim), part(q, i, dim).begin());
          std::ranges::copy(part(q_all, 2 * i + 1, dim), part(gate, i, dim).begin());
        }
      } else {
        q = q_all;
      }
      Vec k = weights.multiply(a.k, h);        // [n_kv][dim]
      const Vec v = weights.multiply(a.v, h);  // [n_kv][dim]
      for (size_t i = 0; i < n_heads; ++i) {
        std::ranges::copy(rms_norm(part(q, i, dim), a.q_norm, eps), part(q, i, dim).begin());
        rope(part(q, i, dim), c.rope_dims, c.rope_base, position);
      }
      for (size_t i = 0; i < n_kv; ++i) {
        std::ranges::copy(rms_norm(part(k, i, dim), a.k_norm, eps), part(k, i, dim).begin());
        rope(part(k, i, dim), c.rope_dims, c.rope_base, position);
      }
      state.keys.insert(state.keys.end(), k.begin(), k.end());
      state.values.insert(state.values.end(), v.begin(), v.end());

      // Every head looks back over all tokens so far; n_heads / n_kv heads share a key and value.
      const size_t n_past = static_cast<size_t>(position) + 1;
      Vec attended(n_heads * dim, 0.0);
      for (size_t i = 0; i < n_heads; ++i) {
        const size_t kv = i / (n_heads / n_kv);
        Vec score(n_past);
        for (size_t t = 0; t < n_past; ++t)
          score[t] = dot(part(q, i, dim), part(state.keys, t * n_kv + kv, dim)) / std::sqrt(c.head_dim);
        softmax(score);
        for (size_t t = 0; t < n_past; ++t)
          for (size_t j = 0; j < dim; ++j)
            attended[i * dim + j] += score[t] * state.values[(t * n_kv + kv) * dim + j];
      }
      if (c.gated_attention)
        for (size_t i = 0; i < attended.size(); ++i) attended[i] *= sigmoid(gate[i]);
      mixed = weights.multiply(a.output, attended);
    } else {
      const model::DeltaNetWeights& d = layer.delta;
      const size_t dim = static_cast<size_t>(c.state_dim), kernel = static_cast<size_t>(c.conv_kernel);
      const size_t n_k = static_cast<size_t>(c.n_k_heads), n_v = static_cast<size_t>(c.n_v_heads);
      const size_t per_k = n_v / n_k;  // V heads of a K head in the fused layouts
      const size_t key_dim = n_k * dim, conv_dim = static_cast<size_t>(c.conv_dim());

      // qkv[conv_dim] = q[n_k][dim], k[n_k][dim], v[n_v][dim]; z[n_v][dim]
      Vec qkv, z;
      if (d.qkv) {
        qkv = weights.multiply(d.qkv, h);
        z = weights.multiply(d.z, h);
      } else {
        const Vec all = weights.multiply(d.qkvz, h);  // [n_k][q: dim, k: dim, v: per_k * dim, z: per_k * dim]
        qkv.resize(conv_dim);
        z.resize(n_v * dim);
        for (size_t i = 0; i < n_k; ++i) {
          const std::span<const double> head = part(all, i, (2 + 2 * per_k) * dim);
          std::ranges::copy(head.subspan(0, dim), qkv.begin() + static_cast<ptrdiff_t>(i * dim));
          std::ranges::copy(head.subspan(dim, dim), qkv.begin() + static_cast<ptrdiff_t>(key_dim + i * dim));
          std::ranges::copy(head.subspan(2 * dim, per_k * dim),
                            qkv.begin() + static_cast<ptrdiff_t>(2 * key_dim + i * per_k * dim));
          std::ranges::copy(head.subspan((2 + per_k) * dim, per_k * dim),
                            z.begin() + static_cast<ptrdiff_t>(i * per_k * dim));
        }
      }
      // b[n_v], a[n_v]: how much to write, and how much to forget
      Vec b, a;
      if (d.beta) {
        b = weights.multiply(d.beta, h);
        a = weights.multiply(d.alpha, h);
      } else {
        const Vec ba = weights.multiply(d.ba, h);  // [n_k][b: per_k, a: per_k]
        for (size_t i = 0; i < n_v; ++i) {
          const size_t head = i / per_k, j = i % per_k;
          b.push_back(ba[head * 2 * per_k + j]);
          a.push_back(ba[head * 2 * per_k + per_k + j]);
        }
      }

      // A causal convolution of each channel over its last `kernel` inputs, then SiLU.
      Vec& past = state.conv;
      past.insert(past.end(), qkv.begin(), qkv.end());  // past[kernel][conv_dim]
      for (size_t channel = 0; channel < conv_dim; ++channel) {
        double sum = 0;
        for (size_t i = 0; i < kernel; ++i)
          sum += static_cast<double>(d.conv[channel * kernel + i]) * past[i * conv_dim + channel];
        qkv[channel] = silu(sum);
      }
      past.erase(past.begin(), past.begin() + static_cast<ptrdiff_t>(conv_dim));

      for (size_t i = 0; i < 2 * n_k; ++i) l2_normalize(part(qkv, i, dim), eps);  // all q and k heads

      Vec read(n_v * dim);  // [n_v][dim]
      for (size_t i = 0; i < n_v; ++i) {
        const size_t k_head = static_cast<size_t>(c.k_head_of(static_cast<int>(i)));
        const double decay = std::exp(softplus(a[i] + d.dt[i]) * d.a[i]);
        Vec o = delta_step(part(state.delta, i, dim * dim), part(qkv, k_head, dim),
                           part(qkv, n_k + k_head, dim), part(qkv, 2 * n_k + i, dim), decay, sigmoid(b[i]));
        for (double& value : o) value /= std::sqrt(c.state_dim);
        const Vec normed = rms_norm(o, d.norm, eps);
        for (size_t j = 0; j < dim; ++j) read[i * dim + j] = normed[j] * silu(z[i * dim + j]);
      }
      mixed = weights.multiply(d.output, read);
    }
    pass(Stage::MixerOutput, l, mixed);
    for (size_t i = 0; i < x.size(); ++i) x[i] += mixed[i];

    Vec f = rms_norm(x, layer.ffn_norm, eps);  // f[n_embd]
    pass(Stage::FfnInput, l, f);

    // The router, in F32 and in the order every runner follows.
    const std::vector<float> router_input(f.begin(), f.end());
    std::vector<float> router(static_cast<size_t>(c.n_experts));  // router[n_experts]
    const std::span<const float> router_rows = weights.values(layer.ffn.router);
    for (size_t e = 0; e < router.size(); ++e)
      router[e] = model::router_logit(router_rows.data() + e * f.size(), router_input.data(), c.n_embd);
    std::vector<int32_t> ids(static_cast<size_t>(c.n_experts_used));
    std::vector<float> shares(ids.size());
    model::select_experts(router, c.expert_weights_scale, ids, shares);
    show(Stage::RouterLogits, l, router);
    show(Stage::ExpertIds, l, ids);
    show(Stage::ExpertWeights, l, shares);

    // down * (silu(gate * f) . (up * f)): the selected experts, weighted, then the shared one.
    const auto expert = [&](const model::Matrix& gate, const model::Matrix& up, const model::Matrix& down) {
      Vec g = weights.multiply(gate, f);  // g[ff]
      const Vec u = weights.multiply(up, f);
      for (size_t i = 0; i < g.size(); ++i) g[i] = silu(g[i]) * u[i];
      return weights.multiply(down, g);  // [n_embd]
    };
    Vec sum(x.size(), 0.0);  // sum[n_embd]
    for (size_t e = 0; e < ids.size(); ++e) {
      const model::Model::Expert m = model.mapped_expert(l, ids[e]);
      const Vec y = expert(m.gate, m.up, m.down);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(shares[e]) * y[i];
    }
    if (c.shared_ff > 0) {
      const Vec y = expert(layer.ffn.shared_gate, layer.ffn.shared_up, layer.ffn.shared_down);
      const double share = sigmoid(weights.multiply(layer.ffn.shared_gate_inp, f)[0]);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * y[i];
    }
    pass(Stage::FfnOutput, l, sum);
    for (size_t i = 0; i < x.size(); ++i) x[i] += sum[i];
    pass(Stage::LayerOutput, l, x);
  }

  if (out) {
    Vec final_norm = rms_norm(x, w.output_norm, eps);  // [n_embd]
    pass(Stage::FinalNorm, -1, final_norm);
    Vec scores = weights.multiply(w.output, final_norm);  // [n_vocab]
    pass(Stage::Logits, -1, scores);
    out->insert(out->end(), scores.begin(), scores.end());
  }
  ++position;
}

ReferenceRunner::ReferenceRunner(const model::Model& model, int context)
    : impl_(std::make_unique<Impl>(model, context)) {}
ReferenceRunner::~ReferenceRunner() = default;

std::span<const float> ReferenceRunner::forward(std::span<const Token> tokens, model::LogitsFor which) {
  const int n_vocab = impl_->model.config().n_vocab;
  if (tokens.size() > static_cast<size_t>(impl_->capacity - impl_->position))
    fail("{} tokens more than the {} of a context of {}; give a larger context", tokens.size(),
         impl_->position, impl_->capacity);
  for (const Token token : tokens)
    if (token < 0 || token >= n_vocab) fail("token {} is outside the vocabulary of {}", token, n_vocab);

  impl_->logits.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool wanted =
        which == model::LogitsFor::All || (which == model::LogitsFor::Last && i + 1 == tokens.size());
    impl_->forward_token(tokens[i], tap_, override_, wanted ? &impl_->logits : nullptr);
  }
  return impl_->logits;
}

int ReferenceRunner::position() const {
  return impl_->position;
}
int ReferenceRunner::capacity() const {
  return impl_->capacity;
}
void ReferenceRunner::reset() {
  impl_->reset();
}

namespace {

struct ReferenceMark final : model::Mark {
  int position = 0;
  std::vector<LayerState> layers;
};

}  // namespace

std::unique_ptr<model::Mark> ReferenceRunner::mark() const {
  auto mark = std::make_unique<ReferenceMark>();
  mark->position = impl_->position;
  mark->layers = impl_->layers;
  return mark;
}

void ReferenceRunner::rewind(const model::Mark& mark) {
  const auto* place = dynamic_cast<const ReferenceMark*>(&mark);
  RL_CHECK(place != nullptr && place->position <= impl_->position, "position {}", impl_->position);
  impl_->position = place->position;
  impl_->layers = place->layers;
}

}  // namespace redlite::reference
