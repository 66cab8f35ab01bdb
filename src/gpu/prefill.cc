#include "gpu/prefill.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/prefill_attend.h"
#include "gpu/kernels/prefill_delta.h"
#include "gpu/kernels/prefill_floats.h"
#include "gpu/kernels/prefill_inputs.h"
#include "gpu/kernels/prefill_route.h"
#include "gpu/prefill_products.h"
#include "quant/decode.h"

namespace redlite::gpu {

using model::LayerKind;
using model::Stage;

namespace {

size_t count(auto... factors) {
  return (size_t{1} * ... * static_cast<size_t>(factors));
}

int widest_input(const model::Config& c) {
  return std::max({c.n_embd, c.n_heads * c.head_dim, c.value_dim()});
}
int widest_expert(const model::Config& c) {
  return std::max(c.expert_ff, c.shared_ff);
}

}  // namespace

QuantizedRows Prefill::rows(int n_rows, int n) {
  QuantizedRows out;
  out.strips = (n + 63) / 64 * 4;
  out.q = arena_.take<uint32_t>(count(n_rows, out.strips, 4));
  out.scale = arena_.take<float>(count(n_rows, out.strips));
  out.sum = arena_.take<float>(count(n_rows, out.strips));
  out.pair_sum = arena_.take<float>(count(n_rows, out.strips / 2));
  return out;
}

Prefill::Prefill(Device& device, const model::Model& model, const DeviceModel& weights,
                 const Sequence& sequence, const Scratch& decode, int batch)
    : device_(device),
      model_(model),
      config_(model.config()),
      weights_(weights),
      sequence_(sequence),
      batch_(batch),
      attend_parts_(decode.attend_parts),
      proj_width_(decode.proj_width),
      rope_frequencies_(decode.rope_frequencies),
      arena_(device, "buffers for a chunk of tokens") {
  const model::Config& c = config_;
  const int selections = batch * c.n_experts_used, ff = widest_expert(c);
  const int pairs = std::max(selections, batch);

  x_ = arena_.take<float>(count(batch, c.n_embd));
  rope_ = arena_.take<float>(count(batch, c.rope_dims));
  floats_ = arena_.take<float>(count(batch, widest_input(c)));
  rounded_ = rows(batch, widest_input(c));
  proj_ = arena_.take<float>(count(batch, proj_width_));
  q_ = arena_.take<float>(count(batch, std::max(c.n_heads * c.head_dim, c.n_k_heads * DeltaLayout::kHead)));
  k_ = arena_.take<float>(count(batch, c.n_k_heads, DeltaLayout::kHead));
  v_ = arena_.take<float>(count(batch, c.value_dim()));
  lengths_ = arena_.take<float>(count(batch, c.n_k_heads, 2));
  decays_ = arena_.take<float>(count(batch, c.n_v_heads, 2));
  core_ = arena_.take<float>(count(batch, std::max(c.n_heads * c.head_dim, c.value_dim())));
  shown_ = arena_.take<float>(count(batch, c.n_embd));
  router_ = arena_.take<float>(count(batch, c.n_experts + 1));
  ids_ = arena_.take<int32_t>(count(selections));
  shares_ = arena_.take<float>(count(batch, c.n_experts_used + 1));
  token_ = arena_.take<int32_t>(count(selections));
  selection_ = arena_.take<int32_t>(count(selections));
  tiles_ = arena_.take<ExpertTile>(count(PrefillSort::most_tiles(selections, c.n_experts)));
  first_tile_ = arena_.take<int32_t>(count(c.n_experts + 1));
  gate_up_ = arena_.take<float>(count(pairs, 2 * ff));
  hidden_ = arena_.take<float>(count(pairs, ff));
  hidden_rounded_ = rows(pairs, ff);
  parts_ = arena_.take<float>(count(selections, c.n_embd));
  shared_parts_ = arena_.take<float>(count(batch, c.n_embd));
  logits_ = arena_.take<float>(count(std::min(batch, kLogitRows), c.n_vocab));
  step_ = arena_.take<Step>(1);
  host_step_ = device.allocate_host(sizeof(Step), "the step's record");
  host_x_ = device.allocate_host(count(batch, c.n_embd) * sizeof(float), "embeddings");
  host_logits_ =
      device.allocate_host(count(std::min(batch, kLogitRows), c.n_vocab) * sizeof(float), "logits");

  feed_.emplace(device, model, weights, selections);
}

void Prefill::experts_are_placed(const std::optional<ExpertSupply>& supply) {
  if (supply) {
    feed_->open(*supply);
  } else {
    feed_.reset();
  }
}

/// One pass over a chunk.
struct Prefill::Pass {
  Prefill& s;
  const Launcher& launcher;
  Stream& stream;
  int n;  ///< tokens
  int position;
  uint32_t flip;
  bool all_experts;
  const model::Tap& tap;

  void run(int n_logits, std::vector<float>& logits);

  template <typename K>
  void launch(Dim3 grid, size_t dynamic_shared, const typename K::Params& params,
              uint32_t threads = kStepThreads, bool may_start_early = true) {
    launcher.launch<K>(
        {.grid = grid, .threads = threads, .dynamic_shared = dynamic_shared, .early_start = may_start_early},
        params);
  }

  bool tapped() const { return static_cast<bool>(tap); }
  /// Shows values[n_rows][width] with rows `stride` apart, of tokens from number `first` on.
  void show(Stage stage, int layer, int width, const float* values, int stride, int n_rows, int first = 0) {
    if (!tapped()) return;
    std::vector<float> all(count(n_rows, stride)), shown;
    const WaitAtExit wait(stream);
    stream.copy(all.data(), values, all.size() * sizeof(float));
    stream.synchronize();
    for (size_t t = 0; t < static_cast<size_t>(n_rows); ++t) {
      const float* row = &all[t * static_cast<size_t>(stride)];
      shown.insert(shown.end(), row, row + width);
    }
    tap(stage, layer, position + first, width, shown);
  }
  void show(Stage stage, int layer, int width, const float* values) {
    show(stage, layer, width, values, width, n);
  }

  /// Makes an input of n_rows rows: rounded, and as floats for weights of floats and for taps.
  void input(const PrefillSource& in, int n_rows) {
    QuantizedRows rounded = s.rounded_;
    rounded.strips = (in.n + 63) / 64 * 4;
    launch<PrefillInput>({static_cast<uint32_t>(n_rows)}, PrefillInput::dynamic_shared(in.n),
                         {.input = in, .floats = s.floats_, .rounded = rounded});
  }
  /// y, sum = matrices times what input() made.
  void project(const Projection& matrices, int in, int n_rows, float* y, float* sum, int stride) {
    QuantizedRows rounded = s.rounded_;
    rounded.strips = (in + 63) / 64 * 4;
    TokenTiles tokens;
    tokens.n = n_rows;
    for (int i = 0; i < matrices.n_parts; ++i) {
      const ProjectPart& part = matrices.parts[i];
      const auto at = [&](float* to) { return to == nullptr ? nullptr : to + part.out; };
      prefill_product(launcher, part.matrix, {s.floats_, in, rounded}, tokens,
                      (n_rows + kTileTokens - 1) / kTileTokens, {at(y), at(sum), stride},
                      s.weights_.codebooks());
    }
  }
  void attention(int l);
  void delta_net(int l);
  void experts(int l);
  void expert_product(const DeviceMatrix& w, const ProductInput& x, const TokenTiles& tokens, int n_tiles,
                      float* y, int stride) {
    // What waits for a copy does not start early.
    prefill_product(launcher, w, x, tokens, n_tiles, {y, nullptr, stride}, s.weights_.codebooks(), !s.feed_);
  }
  void output(int n_logits, std::vector<float>& logits);
};

void Prefill::run(const Launcher& launcher, std::span<const model::Token> tokens, int position, uint32_t flip,
                  bool all_experts, int n_logits, const model::Tap& tap, std::vector<float>& logits) {
  const model::Config& c = config_;
  const int n = static_cast<int>(tokens.size());
  RL_CHECK(n <= batch_, "{} tokens", n);
  const model::Matrix& embd = model_.weights().token_embd;
  const auto embed = [&](size_t first, size_t end) {
    for (size_t t = first; t < end; ++t) {
      quant::decode(embd.type, embd.row(tokens[t]), host_x_.host<float>() + t * count(c.n_embd),
                    count(c.n_embd));
    }
  };
  {
    // One thread would take as long as a tenth of the whole pass.
    constexpr size_t kTokensOfThread = 128;
    std::vector<std::jthread> threads;
    size_t first = 0;
    for (; first + kTokensOfThread < tokens.size(); first += kTokensOfThread)
      threads.emplace_back(embed, first, first + kTokensOfThread);
    embed(first, tokens.size());
  }
  *host_step_.host<Step>() = {.position = position, .number = 0, .flip = flip};

  Pass pass{*this, launcher, launcher.stream, n, position, flip, all_experts, tap};
  try {
    pass.run(n_logits, logits);
  } catch (...) {
    // What was launched still uses this chunk's memory.
    try {
      launcher.stream.synchronize();
    } catch (const Error&) {  // the first error is the one that tells what happened
    }
    if (feed_) feed_->abandon();
    throw;
  }
}

void Prefill::Pass::run(int n_logits, std::vector<float>& logits) {
  const model::Config& c = s.config_;
  if (s.feed_) s.feed_->begin(stream, all_experts);
  // x[n][n_embd], the residual; rope[n][rope_dims]
  launch<Embed>({static_cast<uint32_t>(n)}, 0,
                {.host_step = s.host_step_.on_device<Step>(),
                 .host_x = s.host_x_.on_device<float>(),
                 .step = s.step_,
                 .x = s.x_,
                 .rope = s.rope_,
                 .rope_frequencies = s.rope_frequencies_,
                 .stop = nullptr,
                 .n_embd = c.n_embd,
                 .rope_dims = c.rope_dims});
  show(Stage::Embedding, -1, c.n_embd, s.x_);
  for (int l = 0; l < c.n_layers; ++l) {
    // floats[n][n_embd], rounded[n] = norm(x)
    input({.kind = PrefillSource::Kind::Norm,
           .x = s.x_,
           .n = c.n_embd,
           .weight = s.weights_.layer(l).attn_norm,
           .eps = c.rms_eps},
          n);
    show(Stage::MixerInput, l, c.n_embd, s.floats_);
    if (c.layers[static_cast<size_t>(l)] == LayerKind::Attention) {
      attention(l);
    } else {
      delta_net(l);
    }
    show(Stage::MixerOutput, l, c.n_embd, s.shown_);
    experts(l);
    show(Stage::FfnOutput, l, c.n_embd, s.shown_);
    show(Stage::LayerOutput, l, c.n_embd, s.x_);
  }
  if (n_logits > 0) output(n_logits, logits);
  stream.synchronize();
  if (s.feed_) s.feed_->finish();
}

void Prefill::Pass::attention(int l) {
  const model::Config& c = s.config_;
  const DeviceAttention& a = s.weights_.layer(l).attention;
  const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1), group = c.n_heads / c.n_kv_heads;
  const int k_offset = c.n_heads * q_stride, v_offset = k_offset + c.n_kv_heads * c.head_dim;

  // proj[n][q (per head q, gate) | k | v]
  project(a.qkv, c.n_embd, n, s.proj_, nullptr, s.proj_width_);
  // q[n][n_heads][head_dim]; keys and values appended
  launch<PrefillHeads>({static_cast<uint32_t>(n)}, 0,
                       {.proj = s.proj_,
                        .q_norm = a.q_norm,
                        .k_norm = a.k_norm,
                        .rope = s.rope_,
                        .q = s.q_,
                        .keys = s.sequence_.keys(l),
                        .values = s.sequence_.values(l),
                        .position = position,
                        .proj_stride = s.proj_width_,
                        .q_stride = q_stride,
                        .k_offset = k_offset,
                        .v_offset = v_offset,
                        .capacity = s.sequence_.capacity(),
                        .n_heads = c.n_heads,
                        .n_kv_heads = c.n_kv_heads,
                        .head_dim = c.head_dim,
                        .rope_dims = c.rope_dims,
                        .half_kv = s.sequence_.half_kv(),
                        .eps = c.rms_eps});
  // core[n][n_heads][head_dim]
  const auto attend = [&]<typename T>(T) {
    using K = PrefillAttend<T>;
    launch<K>({K::token_blocks(n, group), static_cast<uint32_t>(c.n_kv_heads)}, K::dynamic_shared(c.head_dim),
              {.q = s.q_,
               .keys = static_cast<const T*>(s.sequence_.keys(l)),
               .values = static_cast<const T*>(s.sequence_.values(l)),
               .gate = c.gated_attention ? s.proj_ + c.head_dim : nullptr,
               .core = s.core_,
               .position = position,
               .n_tokens = n,
               .capacity = s.sequence_.capacity(),
               .max_parts = s.attend_parts_,
               .gate_stride = s.proj_width_,
               .gate_head_stride = q_stride,
               .n_heads = c.n_heads,
               .group = group,
               .head_dim = c.head_dim});
  };
  if (s.sequence_.half_kv()) {
    attend(uint16_t{});
  } else {
    attend(float{});
  }
  // x[n][n_embd] += output * core
  const int width = c.n_heads * c.head_dim;
  input({.kind = PrefillSource::Kind::Plain, .x = s.core_, .n = width}, n);
  project(a.output, width, n, tapped() ? s.shown_ : nullptr, s.x_, c.n_embd);
}

void Prefill::Pass::delta_net(int l) {
  const model::Config& c = s.config_;
  const DeviceDeltaNet& d = s.weights_.layer(l).delta;
  // proj[n][q | k | v | z | beta | alpha], or as the file has them: DeltaHead
  project(d.in, c.n_embd, n, s.proj_, nullptr, s.proj_width_);
  // q, k[n][n_k_heads], v[n][n_v_heads], lengths, decays; histories advance
  launch<PrefillConvolve>({PrefillConvolve::token_blocks(n), PrefillConvolve::head_blocks(c.n_v_heads)}, 0,
                          {.proj = s.proj_,
                           .heads = d.heads,
                           .conv = d.conv,
                           .dt = d.dt,
                           .a = d.a,
                           .history = s.sequence_.history(l),
                           .q = s.q_,
                           .k = s.k_,
                           .v = s.v_,
                           .lengths = s.lengths_,
                           .decays = s.decays_,
                           .flip = flip,
                           .proj_stride = s.proj_width_,
                           .n_tokens = n,
                           .n_v_heads = c.n_v_heads,
                           .n_k_heads = c.n_k_heads,
                           .taps = c.conv_kernel,
                           .conv_dim = c.conv_dim(),
                           .key_dim = c.key_dim(),
                           .dim = c.state_dim,
                           .eps = c.rms_eps});
  // core[n][n_v_heads][state_dim]; states advance. Blocks that came early would gather where there is room,
  // two and more on one multiprocessor, and all would wait for these: there are about as many as
  // multiprocessors.
  launch<PrefillScan>({static_cast<uint32_t>(c.n_v_heads), PrefillScan::slices(c.state_dim)}, 0,
                      {.heads = d.heads,
                       .q = s.q_,
                       .k = s.k_,
                       .v = s.v_,
                       .lengths = s.lengths_,
                       .decays = s.decays_,
                       .state = s.sequence_.matrices(l),
                       .core = s.core_,
                       .n_tokens = n,
                       .n_v_heads = c.n_v_heads,
                       .n_k_heads = c.n_k_heads,
                       .dim = c.state_dim},
                      PrefillScan::kThreads, false);
  // x[n][n_embd] += output * (norm(core) * SiLU(z))
  input({.kind = PrefillSource::Kind::GatedNorm,
         .x = s.core_,
         .n = c.value_dim(),
         .weight = d.norm,
         .eps = c.rms_eps,
         .dim = c.state_dim,
         .proj = s.proj_,
         .heads = d.heads,
         .proj_stride = s.proj_width_},
        n);
  project(d.output, c.value_dim(), n, tapped() ? s.shown_ : nullptr, s.x_, c.n_embd);
}

void Prefill::Pass::experts(int l) {
  const model::Config& c = s.config_;
  const DeviceLayer& w = s.weights_.layer(l);
  const int used = c.n_experts_used, selections = n * used;
  const bool has_shared = w.experts.has_shared;
  const int n_rows = c.n_experts + (has_shared ? 1 : 0);

  // floats[n][n_embd], rounded[n] = norm(x); router[n][n_rows]; ids and shares of the selected experts
  input({.kind = PrefillSource::Kind::Norm, .x = s.x_, .n = c.n_embd, .weight = w.ffn_norm, .eps = c.rms_eps},
        n);
  show(Stage::FfnInput, l, c.n_embd, s.floats_);
  TokenTiles dense;
  dense.n = n;
  const int dense_tiles = (n + kTileTokens - 1) / kTileTokens;
  router_product(launcher, w.router, n_rows, s.floats_, c.n_embd, dense, s.router_);
  launch<PrefillSelect>({static_cast<uint32_t>(n)}, 0,
                        {.logits = s.router_,
                         .ids = s.ids_,
                         .shares = s.shares_,
                         .scale = c.expert_weights_scale,
                         .n_experts = c.n_experts,
                         .n_used = used,
                         .n_rows = n_rows});
  if (s.feed_ && !all_experts) s.feed_->choose(stream, l, s.ids_, selections);
  if (tapped()) {
    show(Stage::RouterLogits, l, c.n_experts, s.router_, n_rows, n);
    std::vector<int32_t> ids(count(selections));
    const WaitAtExit wait(stream);
    stream.copy(ids.data(), s.ids_, ids.size() * sizeof(int32_t));
    stream.synchronize();
    tap(Stage::ExpertIds, l, position, used, std::vector<float>(ids.begin(), ids.end()));
    show(Stage::ExpertWeights, l, used, s.shares_, w.experts.n_all(), n);
  }
  // The selections sorted by expert, in tiles
  launch<PrefillSort>({1}, 0,
                      {.ids = s.ids_,
                       .token = s.token_,
                       .selection = s.selection_,
                       .tiles = s.tiles_,
                       .first_tile = s.first_tile_,
                       .n_tokens = n,
                       .n_used = used,
                       .n_experts = c.n_experts},
                      PrefillSort::kThreads);

  QuantizedRows rounded = s.rounded_;
  rounded.strips = (c.n_embd + 63) / 64 * 4;
  const ProductInput x{s.floats_, c.n_embd, rounded};
  const auto hidden = [&](int ff, const TokenTiles& tokens) -> ProductInput {
    QuantizedRows to = s.hidden_rounded_;
    to.strips = (ff + 63) / 64 * 4;
    launch<PrefillHidden>(
        {static_cast<uint32_t>(8 * s.device_.info().multiprocessors)}, 0,
        {.gate_up = s.gate_up_, .floats = s.hidden_, .rounded = to, .tokens = tokens, .ff = ff});
    return {s.hidden_, ff, to};
  };

  if (has_shared) {
    // gate_up[n][2 ff], hidden[n][ff] = SiLU(gate) . up, shared_parts[n][n_embd] = down * hidden
    const ExpertMatrices& m = w.experts.shared;
    const int ff = m.gate.planes.rows;
    expert_product(m.gate, x, dense, dense_tiles, s.gate_up_, 2 * ff);
    expert_product(m.up, x, dense, dense_tiles, s.gate_up_ + ff, 2 * ff);
    expert_product(m.down, hidden(ff, dense), dense, dense_tiles, s.shared_parts_, c.n_embd);
  }
  if (s.feed_) s.feed_->ahead();
  const int n_groups = s.feed_ ? s.feed_->n_groups() : 1;
  const int group_experts = s.feed_ ? s.feed_->group_experts() : c.n_experts;
  for (int group = 0; group < n_groups; ++group) {
    const int first = group * group_experts, end = std::min(c.n_experts, first + group_experts);
    ExpertMatrices m = w.experts.slot;
    if (s.feed_) {
      const std::optional<ExpertMatrices> brought = s.feed_->bring(launcher, l, group);
      if (!brought) continue;
      m = *brought;
    }
    const int ff = m.gate.planes.rows;
    const int n_tiles = PrefillSort::most_tiles(selections, end - first);
    TokenTiles tokens{.n = 0,
                      .tiles = s.tiles_,
                      .first_tile = s.first_tile_,
                      .first_expert = first,
                      .end_expert = end,
                      .input_row = nullptr,
                      .output_row = nullptr,
                      .slot_bytes = w.experts.slot_bytes};
    // gate_up[place][2 ff] of the tokens of the list's places, hidden[place][ff]
    tokens.input_row = s.token_;
    expert_product(m.gate, x, tokens, n_tiles, s.gate_up_, 2 * ff);
    expert_product(m.up, x, tokens, n_tiles, s.gate_up_ + ff, 2 * ff);
    tokens.input_row = nullptr;
    const ProductInput h = hidden(ff, tokens);
    // parts[n][n_used][n_embd]
    tokens.output_row = s.selection_;
    expert_product(m.down, h, tokens, n_tiles, s.parts_, c.n_embd);
    if (s.feed_) s.feed_->ahead();
  }
  // x[n][n_embd] += sum of shares * parts
  launch<PrefillSum>({static_cast<uint32_t>(n)}, 0,
                     {.parts = s.parts_,
                      .shared_parts = has_shared ? s.shared_parts_ : nullptr,
                      .shares = s.shares_,
                      .residual = s.x_,
                      .shown = tapped() ? s.shown_ : nullptr,
                      .n_used = used,
                      .n = c.n_embd});
}

void Prefill::Pass::output(int n_logits, std::vector<float>& logits) {
  const model::Config& c = s.config_;
  for (int first = n - n_logits; first < n; first += kLogitRows) {
    const int rows = std::min(kLogitRows, n - first);
    input({.kind = PrefillSource::Kind::Norm,
           .x = s.x_ + count(first, c.n_embd),
           .n = c.n_embd,
           .weight = s.weights_.output_norm(),
           .eps = c.rms_eps},
          rows);
    show(Stage::FinalNorm, -1, c.n_embd, s.floats_, c.n_embd, rows, first);
    // logits[rows][n_vocab]
    project(s.weights_.output(), c.n_embd, rows, s.logits_, nullptr, c.n_vocab);
    show(Stage::Logits, -1, c.n_vocab, s.logits_, c.n_vocab, rows, first);
    const size_t values = count(rows, c.n_vocab);
    stream.copy(s.host_logits_.host(), s.logits_, values * sizeof(float));
    stream.synchronize();
    const float* host = s.host_logits_.host<float>();
    logits.insert(logits.end(), host, host + values);
  }
}

}  // namespace redlite::gpu
