#include "gpu/token_pass.h"

#include <algorithm>
#include <vector>

#include "gpu/kernels/attend.h"
#include "gpu/kernels/best.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/load_experts.h"
#include "gpu/kernels/route.h"
#include "model/router.h"

namespace redlite::gpu {

using model::LayerKind;
using model::Stage;

TokenPass::TokenPass(Stream& stream, const model::Config& config, const DeviceModel& weights,
                     const Sequence& sequence, const Scratch& scratch, bool concurrent)
    : stream_(stream),
      config_(config),
      weights_(weights),
      sequence_(sequence),
      scratch_(scratch),
      concurrent_(concurrent) {}

void TokenPass::use_host(const HostDecode& host) {
  host_ = &host;
  skip_ = host.stop_flag();
}

void TokenPass::use_prefetch(Device& device) {
  predicts_ = true;
  if (weights_.residency() != Residency::device) return;
  beside_ = device.create_stream();
  forked_ = device.create_event();
  joined_ = device.create_event();
}

template <typename K>
void TokenPass::launch(Dim3 grid, size_t dynamic_shared, typename K::Params params, bool may_start_early) {
  if constexpr (requires { params.skip; }) params.skip = skip_;
  const bool early = concurrent_ && may_start_early;
  const auto run = [&] {
    stream_.launch<K>(
        {.grid = grid, .threads = kStepThreads, .dynamic_shared = dynamic_shared, .early_start = early},
        params);
  };
  early_starts_ += early ? 1 : 0;
  if (profile_ != nullptr) {
    profile_->time(stage_of(params, K::kName), run);
  } else {
    run();
  }
}

std::string TokenPass::stage_of(const Project::Params& p, const char* kernel) const {
  return fmt::format("{} {}", kernel,
                     p.residual != nullptr    ? "output"
                     : p.y == scratch_.logits ? "logits"
                                              : "input");
}

void TokenPass::encode(bool logits) {
  encode_embedding();
  for (int l = 0; l < config_.n_layers; ++l) {
    encode_mixer(l, predicts_);
    if (weights_.residency() == Residency::device) encode_loads(l);
    encode_experts(l);
  }
  if (logits) encode_output();
}

// Only Route changes a layer's table, so the order of changes is that of the main stream. What loads beside
// for layer l + 1 begins behind Route l, which lists it, and writes slots of layer l + 1 alone (each layer
// has its own); of those the last readers were the token before's experts. Route l + 1 does not wait for it:
// it may find what is still on its way, and gives none of these slots away. The experts of layer l + 1 do
// wait: the branch joins in front of the loads that they need, and its lists are written again a token later.
void TokenPass::encode_loads(int l) {
  const bool joining = beside_ && l > 0, forking = beside_ && l + 1 < config_.n_layers;
  if (forking) stream_.record(*forked_);
  if (joining) stream_.wait(*joined_);
  if (forking) {
    beside_->wait(*forked_);
    beside_->launch<LoadExperts>({.grid = {LoadExperts::kBlocksBeside}, .threads = kStepThreads},
                                 weights_.load_params(l + 1, weights_.layer(l + 1).ahead));
    beside_->record(*joined_);
  }
  launch<LoadExperts>({LoadExperts::kBlocks}, 0, weights_.load_params(l, weights_.layer(l).table), !joining);
}

// x[n_embd], the residual; rope[rope_dims]
void TokenPass::encode_embedding() {
  const model::Config& c = config_;
  const Scratch& s = scratch_;
  const int n_embd = c.n_embd;
  launch<Embed>({1}, 0,
                {.host_step = s.host_step.on_device<Step>(),
                 .host_x = s.host_x.on_device<float>(),
                 .step = s.step,
                 .x = s.x,
                 .rope = s.rope,
                 .rope_frequencies = s.rope_frequencies,
                 .stop = host_ ? host_->stop_flag() : nullptr,
                 .n_embd = n_embd,
                 .rope_dims = c.rope_dims});
  show(Stage::Embedding, -1, n_embd, s.x);
}

void TokenPass::encode_mixer(int l, bool predict) {
  const model::Config& c = config_;
  const Scratch& s = scratch_;
  const int n_embd = c.n_embd;
  const DeviceLayer& w = weights_.layer(l);
  float* const shown = tapped() ? s.shown : nullptr;
  const ProjectInput mixer_input{
      .x = s.x, .n = n_embd, .weight = w.attn_norm, .eps = c.rms_eps, .shown = shown};
  if (c.layers[static_cast<size_t>(l)] == LayerKind::Attention) {
    const DeviceAttention& a = w.attention;
    const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1), group = c.n_heads / c.n_kv_heads;
    const int k_offset = c.n_heads * q_stride, v_offset = k_offset + c.n_kv_heads * c.head_dim;

    // proj[q (per head q, gate) | k | v]
    project(mixer_input, a.qkv, s.proj, nullptr);
    show(Stage::MixerInput, l, n_embd, shown);

    // key and value appended; parts[n_heads][parts][head_dim]
    const auto attend = [&]<typename T>(T) {
      using K = Attend<T>;
      launch<K>({static_cast<uint32_t>(c.n_kv_heads), static_cast<uint32_t>(s.attend_parts)},
                K::dynamic_shared(group, c.head_dim),
                {.proj = s.proj,
                 .q_norm = a.q_norm,
                 .k_norm = a.k_norm,
                 .rope = s.rope,
                 .keys = static_cast<T*>(sequence_.keys(l)),
                 .values = static_cast<T*>(sequence_.values(l)),
                 .part_max = s.part_max,
                 .part_sum = s.part_sum,
                 .part_values = s.part_values,
                 .step = s.step,
                 .q_stride = q_stride,
                 .k_offset = k_offset,
                 .v_offset = v_offset,
                 .capacity = sequence_.capacity(),
                 .head_dim = c.head_dim,
                 .rope_dims = c.rope_dims,
                 .group = group,
                 .eps = c.rms_eps});
    };
    if (sequence_.half_kv()) {
      attend(uint16_t{});
    } else {
      attend(float{});
    }
    // core[n_heads][head_dim]
    launch<AttendCombine>({static_cast<uint32_t>(c.n_heads)}, 0,
                          {.part_max = s.part_max,
                           .part_sum = s.part_sum,
                           .part_values = s.part_values,
                           .gate = c.gated_attention ? s.proj + c.head_dim : nullptr,
                           .core = s.core,
                           .rounded = s.core_rounded,
                           .step = s.step,
                           .max_parts = s.attend_parts,
                           .gate_head_stride = q_stride,
                           .head_dim = c.head_dim});
    // x[n_embd] += output * core
    project({.x = s.core, .n = c.n_heads * c.head_dim, .rounded = s.core_rounded}, a.output, shown, s.x);
  } else {
    const DeviceDeltaNet& d = w.delta;

    // proj[q | k | v | z | beta | alpha], or as the file has them: DeltaHead
    project(mixer_input, d.in, s.proj, nullptr);
    show(Stage::MixerInput, l, n_embd, shown);

    // core[n_v_heads][state_dim], but for its RMS norm; states and histories advance
    launch<DeltaStep>(DeltaStep::grid(c.n_v_heads, c.state_dim), 0,
                      {.proj = s.proj,
                       .heads = d.heads,
                       .conv = d.conv,
                       .dt = d.dt,
                       .a = d.a,
                       .history = sequence_.history(l),
                       .state = sequence_.matrices(l),
                       .weight = d.norm,
                       .core = s.core,
                       .rounded = takes_floats(d.output.parts[0].matrix.type) ? nullptr : s.core_rounded,
                       .squares = s.core_squares,
                       .step = s.step,
                       .proj_stride = s.proj_width,
                       .n_tokens = 1,
                       .taps = c.conv_kernel,
                       .conv_dim = c.conv_dim(),
                       .key_dim = c.key_dim(),
                       .dim = c.state_dim,
                       .eps = c.rms_eps});
    // x[n_embd] += output * (norm(core) * SiLU(z))
    project({.x = s.core,
             .n = c.value_dim(),
             .eps = c.rms_eps,
             .rounded = s.core_rounded,
             .squares = s.core_squares,
             .dim = c.state_dim,
             .n_squares = DeltaStep::slices(c.state_dim)},
            d.output, shown, s.x);
  }
  show(Stage::MixerOutput, l, n_embd, shown);

  // h[n_embd], the experts' input; router[n_experts (+ 1)], ids and scores of the selected experts
  const int n_rows = c.n_experts + (w.experts.has_shared ? 1 : 0);
  Route::Params route{.x = s.x,
                      .weight = w.ffn_norm,
                      .router = w.router,
                      .input = s.h,
                      .rounded = s.h_rounded,
                      .logits = s.router,
                      .ids = s.ids,
                      .scores = s.scores,
                      .slots = s.slots,
                      .table = w.table,
                      .host = host_ ? host_->slots(l) : HostSlots{},
                      .step = s.step,
                      .tickets = s.tickets,
                      .eps = c.rms_eps,
                      .n = n_embd,
                      .n_experts = c.n_experts,
                      .n_used = c.n_experts_used,
                      .n_rows = n_rows};
  const int wanted = !predict ? 0 : host_ ? host_->predicted_layers() : 1;
  const int predicted = std::min(wanted, c.n_layers - 1 - l);
  for (int i = 0; i < predicted; ++i) {
    const DeviceLayer& after = weights_.layer(l + 1 + i);
    route.next[i] = {.router = after.router,
                     .logits = s.predicted_router + i * c.n_experts,
                     .table = after.ahead,
                     .host = host_ ? host_->prediction(l + 1 + i, i + 1) : HostSlots{},
                     .ticket = s.predicted_tickets + i};
  }
  const uint32_t blocks =
      Route::blocks(n_rows) + static_cast<uint32_t>(predicted) * Route::blocks(c.n_experts);
  launch<Route>({blocks, 1}, Route::dynamic_shared(n_embd), route);
  show(Stage::FfnInput, l, n_embd, s.h);
  if (tapped()) show_route(l);
}

void TokenPass::encode_experts(int l) {
  const model::Config& c = config_;
  const Scratch& s = scratch_;
  const DeviceLayer& w = weights_.layer(l);
  const int n_embd = c.n_embd;
  const Codebooks* books = weights_.codebooks();
  const int32_t* slots =
      weights_.residency() == Residency::full ? s.ids : s.slots;  // of the selected experts
  float* const shown = tapped() ? s.shown : nullptr;

  // hidden[n_all][ff] = SiLU(gate * h) . (up * h)
  const uint32_t n_all = static_cast<uint32_t>(w.experts.n_all());
  const ProductLayout gate_up = ExpertsGateUp::layout(w.experts, n_embd);
  launch<ExpertsGateUp>({ExpertsGateUp::blocks(std::max(c.expert_ff, c.shared_ff)), n_all, 1}, gate_up.bytes,
                        {.experts = w.experts,
                         .input = s.h,
                         .rounded = s.h_rounded,
                         .slots = slots,
                         .hidden = s.hidden,
                         .hidden_rounded = s.hidden_rounded,
                         .codebooks = books,
                         .hidden_stride = s.hidden_stride,
                         .n = n_embd,
                         .layout = gate_up});
  // x[n_embd] += sum of shares * (down * hidden)
  const ProductLayout down = ExpertsDown::layout(w.experts, s.hidden_stride);
  launch<ExpertsDown>({ExpertsDown::blocks(n_embd), 1}, down.bytes,
                      {.experts = w.experts,
                       .hidden = s.hidden,
                       .hidden_rounded = s.hidden_rounded,
                       .slots = slots,
                       .scores = s.scores,
                       .residual = s.x,
                       .shown = shown,
                       .codebooks = books,
                       .scale = c.expert_weights_scale,
                       .hidden_stride = s.hidden_stride,
                       .n = n_embd,
                       .layout = down});
  show(Stage::FfnOutput, l, n_embd, shown);
  show(Stage::LayerOutput, l, n_embd, s.x);
}

// logits[n_vocab]; the best token is told to the host
void TokenPass::encode_output() {
  const model::Config& c = config_;
  const Scratch& s = scratch_;
  float* const shown = tapped() ? s.shown : nullptr;
  project({.x = s.x, .n = c.n_embd, .weight = weights_.output_norm(), .eps = c.rms_eps, .shown = shown},
          weights_.output(), s.logits, nullptr);
  show(Stage::FinalNorm, -1, c.n_embd, shown);
  show(Stage::Logits, -1, c.n_vocab, s.logits);
  launch<Best>({Best::blocks(c.n_vocab)}, 0,
               {.logits = s.logits,
                .best = s.best,
                .ticket = s.best_ticket,
                .host = s.host_best.on_device<uint64_t>(),
                .n = c.n_vocab});
}

void TokenPass::segment(int segment, bool predict, bool wants_logits) {
  if (segment == 0) {
    encode_embedding();
  } else {
    encode_experts(segment - 1);
  }
  if (segment < config_.n_layers) {
    encode_mixer(segment, predict);
  } else if (wants_logits) {
    encode_output();
  }
}

/// y = matrices * input, residual += that; either may be nullptr.
void TokenPass::project(const ProjectInput& input, const Projection& matrices, float* y, float* residual) {
  Project::Params p{.input = input,
                    .parts = {},
                    .n_parts = matrices.n_parts,
                    .y = y,
                    .residual = residual,
                    .y_stride = 0,  // of one token
                    .codebooks = weights_.codebooks(),
                    .layout = matrices.layout};
  std::copy_n(matrices.parts, matrices.n_parts, p.parts);
  launch<Project>({static_cast<uint32_t>(matrices.n_blocks), 1}, matrices.layout.bytes, p);
}

/// Shows values[width] in device memory to the tap.
void TokenPass::show(Stage stage, int layer, int width, const float* values) {
  if (!tapped()) return;
  std::vector<float> copy(static_cast<size_t>(width));
  const WaitAtExit wait(stream_);
  stream_.copy(copy.data(), values, copy.size() * sizeof(float));
  stream_.synchronize();
  (*tap_)(stage, layer, sequence_.position, width, copy);
}

void TokenPass::show_route(int layer) {
  const int used = config_.n_experts_used;
  // Without what is the shared expert's.
  show(Stage::RouterLogits, layer, config_.n_experts, scratch_.router);
  std::vector<int32_t> ids(static_cast<size_t>(used));
  const WaitAtExit wait(stream_);
  stream_.copy(ids.data(), scratch_.ids, ids.size() * sizeof(int32_t));
  stream_.synchronize();
  (*tap_)(Stage::ExpertIds, layer, sequence_.position, used, std::vector<float>(ids.begin(), ids.end()));
  // Shares exist only in experts_down; these are theirs, bit for bit.
  std::vector<float> scores(ids.size()), weights(ids.size());
  stream_.copy(scores.data(), scratch_.scores, scores.size() * sizeof(float));
  stream_.synchronize();
  model::select_experts(scores, config_.expert_weights_scale, ids, weights);
  (*tap_)(Stage::ExpertWeights, layer, sequence_.position, used, weights);
}

}  // namespace redlite::gpu
