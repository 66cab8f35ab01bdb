#include "synth/tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace redlite::synth {

namespace {

using quant::Type;

// Root mean squares of what the output projections read, measured on such models: SiLU(z) times a normalised
// head, gated averages of values, and SiLU(gate) * up.
constexpr float kDeltaOutputRms = 0.6f;
constexpr float kAttentionOutputRms = 0.35f;
constexpr float kExpertHiddenRms = 0.6f;
constexpr float kSharedGateRms = 0.54f;     // sigmoid of a standard normal
constexpr float kExpertWeightsNorm = 0.4f;  // root of the sum of the squared weights of the used experts

class Planner {
 public:
  Planner(const Shape& shape, const Layout& layout, const TypePlan& types, const Profile& profile,
          const std::vector<bool>& text)
      : shape_(shape), layout_(layout), types_(types), profile_(profile), text_(text) {}

  std::vector<TensorPlan> plan() {
    embedding();
    for (int i = 0; i < shape_.n_layers; ++i) layer(i, shape_.is_attention(i));
    if (layout_.mtp) mtp(shape_.n_layers);
    ends();
    return std::move(tensors_);
  }

 private:
  TensorPlan& add(std::string name, std::vector<uint64_t> dims, Type type) {
    const quant::TypeInfo& info = quant::info(type);
    if (dims[0] % info.block_values != 0)
      fail("{}: {} needs rows of a multiple of {} values, these have {}; choose another type for its role",
           name, info.name, info.block_values, dims[0]);
    tensors_.push_back({.name = std::move(name), .shape = std::move(dims), .type = type});
    return tensors_.back();
  }

  void vector(std::string name, std::vector<uint64_t> dims, std::function<float(Random&, uint64_t)> value) {
    add(std::move(name), std::move(dims), Type::F32).value = std::move(value);
  }

  void norm(std::string name, int n) {
    vector(std::move(name), {u(n)}, [](Random& random, uint64_t) { return 1 + 0.05f * random.normal(); });
  }

  // A matrix whose columns read the residual.
  void reader(std::string name, int layer, Role role, uint64_t rows, std::vector<float> deviations) {
    add(std::move(name), {u(shape_.n_embd), rows}, types_.type(role, layer, shape_.n_layers)).bands = {
        {rows, std::move(deviations)}};
  }

  // Bands of a matrix whose rows add to the residual: `update` by group of rows, from inputs of this norm.
  std::vector<Band> writer_bands(const std::vector<float>& update, float input_norm) const {
    std::vector<Band> bands;
    if (update.size() == 1) return {{u(shape_.n_embd), {update[0] / input_norm}}};
    bands.reserve(update.size());
    for (const float deviation : update) bands.push_back({kGroup, {deviation / input_norm}});
    return bands;
  }

  std::string block(int layer, std::string_view rest) const { return fmt::format("blk.{}.{}", layer, rest); }
  static uint64_t u(int value) { return static_cast<uint64_t>(value); }

  void embedding() {
    TensorPlan& t =
        add("token_embd.weight", {u(shape_.n_embd), u(shape_.n_vocab)}, types_.type(Role::Embedding, 0, 1));
    const std::vector<float> deviations = profile_.embedding();
    t.bands = {{u(shape_.n_vocab), deviations}};
    t.same_in_all_rows.assign(deviations.size(), false);
    if (profile_.structured()) t.same_in_all_rows[0] = true;
  }

  void ends() {
    if (layout_.tied_output) {
      // With plain norms the last token would be its own most probable successor.
      vector("output_norm.weight", {u(shape_.n_embd)}, [](Random& random, uint64_t) {
        const float magnitude = 1 + 0.05f * random.normal();
        return random.bits() & 1 ? magnitude : -magnitude;
      });
      return;
    }
    norm("output_norm.weight", shape_.n_embd);
    TensorPlan& t =
        add("output.weight", {u(shape_.n_embd), u(shape_.n_vocab)}, types_.type(Role::Output, 0, 1));
    const std::vector<float> strong = profile_.reading({shape_.n_layers, false}, logit_deviation(text_),
                                                       0.01f, profile_.knobs().output_context);
    std::vector<float> weak = strong;
    for (float& d : weak) d *= 0.02f;
    for (size_t i = 0; i < text_.size();) {
      const size_t end = static_cast<size_t>(
          std::find(text_.begin() + static_cast<ptrdiff_t>(i), text_.end(), !text_[i]) - text_.begin());
      t.bands.push_back({end - i, text_[i] ? strong : weak});
      i = end;
    }
  }

  void layer(int i, bool attention) {
    norm(block(i, "attn_norm.weight"), shape_.n_embd);
    if (attention)
      attention_mixer(i);
    else
      delta_net(i);
    norm(block(i, shape_.architecture == "qwen3moe" ? "ffn_norm.weight" : "post_attention_norm.weight"),
         shape_.n_embd);
    experts(i);
    if (shape_.shared_ff > 0) shared_expert(i);
  }

  std::vector<float> mixer_update(int i) const {
    return profile_.mixer_update(std::min(i, shape_.n_layers - 1));
  }
  std::vector<float> ffn_update(int i) const { return profile_.ffn_update(std::min(i, shape_.n_layers - 1)); }

  void attention_mixer(int i) {
    const uint64_t width = u(shape_.n_heads) * u(shape_.head_dim);
    const uint64_t kv_width = u(shape_.n_kv_heads) * u(shape_.head_dim);
    const std::vector<float> plain = profile_.reading(1);
    reader(block(i, "attn_q.weight"), i, Role::AttentionQ, shape_.gated_attention() ? 2 * width : width,
           plain);
    reader(block(i, "attn_k.weight"), i, Role::AttentionK, kv_width, plain);
    reader(block(i, "attn_v.weight"), i, Role::AttentionV, kv_width, plain);
    norm(block(i, "attn_q_norm.weight"), shape_.head_dim);
    norm(block(i, "attn_k_norm.weight"), shape_.head_dim);
    add(block(i, "attn_output.weight"), {width, u(shape_.n_embd)},
        types_.type(Role::AttentionOutput, i, shape_.n_layers))
        .bands = writer_bands(mixer_update(i), kAttentionOutputRms * std::sqrt(static_cast<float>(width)));
  }

  void delta_net(int i) {
    const uint64_t key = u(shape_.key_dim());
    const uint64_t value = u(shape_.value_dim());
    const uint64_t v_heads = u(shape_.n_v_heads);
    const std::vector<float> plain = profile_.reading(1);
    const std::vector<float> steady = profile_.reading({i, false}, 1, profile_.knobs().query_common,
                                                       0.3f * (1 - profile_.knobs().query_common));
    const std::vector<float> own = profile_.reading({i, false}, 1, profile_.knobs().value_common, 0.3f);
    if (layout_.ssm_in) {  // by K head: q, k, v and z of its V heads
      const uint64_t k_heads = u(shape_.n_k_heads);
      TensorPlan& t = add(block(i, "ssm_in.weight"), {u(shape_.n_embd), 2 * key + 2 * value},
                          types_.type(Role::DeltaQkv, i, shape_.n_layers));
      t.bands = {
          {key / k_heads, steady}, {key / k_heads, plain}, {value / k_heads, own}, {value / k_heads, steady}};
    } else {
      TensorPlan& t = add(block(i, "attn_qkv.weight"), {u(shape_.n_embd), 2 * key + value},
                          types_.type(Role::DeltaQkv, i, shape_.n_layers));
      t.bands = {{key, steady}, {key, plain}, {value, own}};
      reader(block(i, "attn_gate.weight"), i, Role::DeltaZ, value, steady);
    }
    if (shape_.architecture == "qwen35moe") {
      reader(block(i, "ssm_beta.weight"), i, Role::DeltaBa, v_heads, plain);
      reader(block(i, "ssm_alpha.weight"), i, Role::DeltaBa, v_heads, plain);
    } else {
      reader(block(i, "ssm_ba.weight"), i, Role::DeltaBa, 2 * v_heads, plain);
    }
    // Small inputs keep SiLU nearly linear: keys, queries and values without a mean have products without
    // one, and the state becomes a sum of what was said lately, not of what is always the same.
    const uint64_t taps = u(shape_.conv_kernel);
    const float size = profile_.knobs().conv_size;
    vector(
        block(i, "ssm_conv1d.weight"), {taps, 2 * key + value}, [taps, size](Random& random, uint64_t index) {
          return size * (index % taps == taps - 1 ? 0.8f + 0.2f * random.normal() : 0.35f * random.normal());
        });
    // Decay in one token is exp(softplus(a + dt) * ssm_a). Rates ssm_a from -16 to -1, as models are
    // initialised with, spread over the heads, and the step dt that gives a head its length of memory when a
    // is 0.
    const auto rate = [](uint64_t head) {
      const double golden = 0.6180339887 * static_cast<double>(head + 1);
      return static_cast<float>(1 + 15 * (golden - std::floor(golden)));
    };
    const float shortest = profile_.knobs().memory_shortest;
    const float longest = profile_.knobs().memory_longest;
    vector(block(i, "ssm_dt.bias"), {v_heads}, [=](Random& random, uint64_t head) {
      const float memory = std::exp(random.uniform(std::log(shortest), std::log(longest)));
      return std::log(std::expm1(1 / (memory * rate(head))));
    });
    vector(block(i, "ssm_a"), {v_heads},
           [=](Random& random, uint64_t head) { return -rate(head) * (1 + 0.05f * random.normal()); });
    norm(block(i, "ssm_norm.weight"), shape_.state_dim);
    add(block(i, "ssm_out.weight"), {value, u(shape_.n_embd)},
        types_.type(Role::DeltaOutput, i, shape_.n_layers))
        .bands = writer_bands(mixer_update(i), kDeltaOutputRms * std::sqrt(static_cast<float>(value)));
  }

  void experts(int i) {
    const Knobs& knobs = profile_.knobs();
    const int layer = std::min(i, shape_.n_layers - 1);
    const uint64_t n = u(shape_.n_experts);
    const uint64_t ff = u(shape_.expert_ff);
    const uint64_t embd = u(shape_.n_embd);
    const auto type = [&](Role role) { return types_.type(role, i, shape_.n_layers); };
    reader(block(i, "ffn_gate_inp.weight"), i, Role::Router, n,
           profile_.reading({layer, true}, knobs.router_deviation, knobs.router_popularity,
                            knobs.router_context));
    tensors_.back().bf16_values = type(Role::Router) == Type::F32;
    const std::vector<float> plain = profile_.reading(1);
    if (layout_.fused_gate_up) {
      add(block(i, "ffn_gate_up_exps.weight"), {embd, 2 * ff, n}, type(Role::ExpertGate)).bands = {
          {2 * ff, plain}};
    } else {
      add(block(i, "ffn_gate_exps.weight"), {embd, ff, n}, type(Role::ExpertGate)).bands = {{ff, plain}};
      add(block(i, "ffn_up_exps.weight"), {embd, ff, n}, type(Role::ExpertUp)).bands = {{ff, plain}};
    }
    const float half = shape_.shared_ff > 0 ? std::sqrt(0.5f) : 1;  // the shared expert does half of the work
    add(block(i, "ffn_down_exps.weight"), {ff, embd, n}, type(Role::ExpertDown)).bands = writer_bands(
        ffn_update(i), kExpertHiddenRms * kExpertWeightsNorm * std::sqrt(static_cast<float>(ff)) / half);
  }

  void shared_expert(int i) {
    const uint64_t ff = u(shape_.shared_ff);
    const uint64_t embd = u(shape_.n_embd);
    const std::vector<float> plain = profile_.reading(1);
    const float gate = profile_.reading(1)[0];
    vector(block(i, "ffn_gate_inp_shexp.weight"), {embd},
           [gate](Random& random, uint64_t) { return gate * random.normal(); });
    reader(block(i, "ffn_gate_shexp.weight"), i, Role::Shared, ff, plain);
    reader(block(i, "ffn_up_shexp.weight"), i, Role::Shared, ff, plain);
    add(block(i, "ffn_down_shexp.weight"), {ff, embd}, types_.type(Role::Shared, i, shape_.n_layers)).bands =
        writer_bands(ffn_update(i),
                     kExpertHiddenRms * kSharedGateRms * std::sqrt(static_cast<float>(ff)) / std::sqrt(0.5f));
  }

  // The trunk does not use it; a file that has one holds a whole attention layer and the four tensors that
  // join the last hidden state with the next token's embedding.
  void mtp(int i) {
    layer(i, true);
    const float deviation = 1 / std::sqrt(2 * static_cast<float>(shape_.n_embd));
    add(block(i, "nextn.eh_proj.weight"), {2 * u(shape_.n_embd), u(shape_.n_embd)},
        types_.type(Role::AttentionOutput, i, shape_.n_layers))
        .bands = {{u(shape_.n_embd), {deviation}}};
    norm(block(i, "nextn.enorm.weight"), shape_.n_embd);
    norm(block(i, "nextn.hnorm.weight"), shape_.n_embd);
    norm(block(i, "nextn.shared_head_norm.weight"), shape_.n_embd);
  }

  const Shape& shape_;
  const Layout& layout_;
  const TypePlan& types_;
  const Profile& profile_;
  const std::vector<bool>& text_;
  std::vector<TensorPlan> tensors_;
};

}  // namespace

float logit_deviation(const std::vector<bool>& text) {
  return 0.8f * std::sqrt(std::log(static_cast<float>(std::count(text.begin(), text.end(), true))));
}

uint64_t TensorPlan::rows() const {
  return std::accumulate(shape.begin() + 1, shape.end(), uint64_t{1}, std::multiplies<>());
}

uint64_t TensorPlan::bytes() const {
  return rows() * quant::row_bytes(type, shape[0]);
}

std::vector<TensorPlan> plan_tensors(const Shape& shape, const Layout& layout, const TypePlan& types,
                                     const Profile& profile, const std::vector<bool>& text) {
  check_layout(shape, layout);
  return Planner(shape, layout, types, profile, text).plan();
}

}  // namespace redlite::synth
