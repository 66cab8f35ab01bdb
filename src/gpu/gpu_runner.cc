#include "gpu/gpu_runner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/device_model.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/best.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/load_experts.h"
#include "gpu/kernels/route.h"
#include "gpu/launcher.h"
#include "gpu/limits.h"
#include "gpu/own_sequence.h"
#include "gpu/prefill.h"
#include "gpu/scratch.h"
#include "gpu/sequence.h"
#include "quant/decode.h"

namespace redlite::gpu {

using model::LayerKind;
using model::LogitsFor;
using model::Stage;
using model::Token;

struct GpuRunner::Impl {
  Impl(const model::Model& m, std::unique_ptr<Device> d, const GpuOptions& options)
      : model(m),
        config(m.config()),
        device(std::move(d)),
        stream(device->create_stream()),
        concurrent(options.concurrent && !options.profile),
        weights(m, *device, *stream),
        sequence(*device, config, choose_context(config, options.context), options.half_kv),
        scratch(*device, config, 1, sequence.capacity()) {
    if (options.profile) profile.emplace(*device, *stream);
    prefill.emplace(*device, model, weights, sequence, scratch, std::min(options.batch, sequence.capacity()));
    scratch.begin(*stream);
    sequence.reset(*stream);
    place_experts(options);
    if (weights.residency() == Residency::host) prefill.reset();
    if (prefill) prefill->experts_are_placed(*stream);
    prefill_from = weights.residency() == Residency::full ? 2 : std::max(2, options.streamed_from);
    stream->synchronize();
  }

  /// Last of all that takes device memory: what is left is known then.
  void place_experts(const GpuOptions& options);
  /// Tokens that the next chunk of n has: 1 where they are computed one by one.
  int chunk(int n) const { return prefill && n >= prefill_from ? std::min(n, prefill->batch()) : 1; }

  /// Puts the kernels of a forward pass of n tokens into the stream; logits[n_logits][n_vocab] of the last
  /// n_logits of them stay on the device, the last one's best token is told to the host.
  void encode(int n, int n_logits);
  // Its parts, in this order; the embeddings and Step are the host's to put in place.
  void encode_embedding(int n);
  void encode_mixer(int l, int n);    ///< with the router behind it
  void encode_experts(int l, int n);  ///< of the slots that the router found, or that were filled since
  void encode_output(int n, int n_logits);
  /// Beside layer l's experts and the next mixer: the next router on what layer l's experts get (normed once
  /// more, which is a factor and changes no order). A device that manages its cache loads what that selects,
  /// a host is told.
  void encode_prefetch(int l);
  /// A segment of HostGpu, of one token.
  void encode_segment(int segment, bool predict, bool logits);
  /// What a pass leaves for the host.
  enum class Output : uint8_t { none, best, logits };
  /// Throws Error unless the tokens can be appended.
  void check(std::span<const Token> tokens) const;
  void forward_one(Token token, Output output);

  Launcher launcher() { return {*stream, concurrent, profile ? &*profile : nullptr}; }
  template <typename K>
  void launch(Dim3 grid, size_t dynamic_shared, typename K::Params params, bool may_start_early = true) {
    if constexpr (requires { params.skip; }) params.skip = skip;
    const bool early = concurrent && may_start_early;
    const auto run = [&] {
      stream->launch<K>(
          {.grid = grid, .threads = kStepThreads, .dynamic_shared = dynamic_shared, .early_start = early},
          params);
    };
    early_starts += early ? 1 : 0;
    if (profile) {
      profile->time(stage_of(params, K::kName), run);
    } else {
      run();
    }
  }
  /// A kernel's stage in a profile.
  template <typename Params>
  std::string stage_of(const Params& /*params*/, const char* kernel) const {
    return kernel;
  }
  std::string stage_of(const Project::Params& p, const char* kernel) const {
    return fmt::format("{} {}", kernel,
                       p.residual != nullptr   ? "output"
                       : p.y == scratch.logits ? "logits"
                                               : "input");
  }
  void project(const ProjectInput& input, const Projection& matrices, int n, float* y, float* residual,
               int y_stride);

  bool tapped() const { return *tap != nullptr; }
  void show(Stage stage, int layer, int width, int n, const float* values, int first = 0);
  void show_route(int layer, int n);

  const model::Model& model;
  const model::Config& config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  bool concurrent;
  std::optional<Profile> profile;
  uint64_t early_starts = 0;
  DeviceModel weights;
  Sequence sequence;
  Scratch scratch;
  std::optional<Prefill> prefill;  ///< none where the host manages a cache
  int prefill_from = 0;            ///< tokens of a chunk from which on they are computed at once
  std::unique_ptr<Graph> decode;   ///< encode(1, 1), captured
  std::string placement;
  std::optional<HostDecode> host;  ///< Residency::host
  std::unique_ptr<Stream> beside;  ///< a cache with prefetch
  std::unique_ptr<Event> forked, joined;
  bool joins = false;  ///< the next router waits for what is beside

  const uint32_t* skip = nullptr;  ///< the early-out flag of every kernel; nullptr: none
  uint32_t number = 0;             ///< Step::number of the last pass
  const model::Tap* tap = nullptr;
  std::vector<float> logits;  ///< of the last call, where they are of several chunks
};

void GpuRunner::Impl::encode(int n, int n_logits) {
  encode_embedding(n);
  for (int l = 0; l < config.n_layers; ++l) {
    encode_mixer(l, n);
    if (beside && n == 1 && l + 1 < config.n_layers) encode_prefetch(l);
    encode_experts(l, n);
  }
  if (n_logits > 0) encode_output(n, n_logits);
}

// x[n][n_embd], the residual; rope[n][rope_dims]
void GpuRunner::Impl::encode_embedding(int n) {
  const model::Config& c = config;
  const Scratch& s = scratch;
  const uint32_t tokens = static_cast<uint32_t>(n);
  const int n_embd = c.n_embd;
  launch<Embed>({tokens}, 0,
                {.host_step = s.host_step.on_device<Step>(),
                 .host_x = s.host_x.on_device<float>(),
                 .step = s.step,
                 .x = s.x,
                 .rope = s.rope,
                 .rope_frequencies = s.rope_frequencies,
                 .stop = host ? host->stop_flag() : nullptr,
                 .n_embd = n_embd,
                 .rope_dims = c.rope_dims});
  show(Stage::Embedding, -1, n_embd, n, s.x);
}

void GpuRunner::Impl::encode_mixer(int l, int n) {
  const model::Config& c = config;
  const Scratch& s = scratch;
  const uint32_t tokens = static_cast<uint32_t>(n);
  const int n_embd = c.n_embd;
  const DeviceLayer& w = weights.layer(l);
  float* const shown = tapped() ? s.shown : nullptr;
  const ProjectInput mixer_input{
      .x = s.x, .n = n_embd, .weight = w.attn_norm, .eps = c.rms_eps, .shown = shown};
  if (c.layers[static_cast<size_t>(l)] == LayerKind::Attention) {
    const DeviceAttention& a = w.attention;
    const int q_stride = c.head_dim * (c.gated_attention ? 2 : 1), group = c.n_heads / c.n_kv_heads;
    const int k_offset = c.n_heads * q_stride, v_offset = k_offset + c.n_kv_heads * c.head_dim;

    // proj[n][q (per head q, gate) | k | v]
    project(mixer_input, a.qkv, n, s.proj, nullptr, s.proj_width);
    show(Stage::MixerInput, l, n_embd, n, shown);

    // key and value appended; parts[n_heads][parts][head_dim]
    const auto attend = [&]<typename T>(T) {
      using K = Attend<T>;
      launch<K>({static_cast<uint32_t>(c.n_kv_heads), static_cast<uint32_t>(s.attend_parts)},
                K::dynamic_shared(group, c.head_dim),
                {.proj = s.proj,
                 .q_norm = a.q_norm,
                 .k_norm = a.k_norm,
                 .rope = s.rope,
                 .keys = static_cast<T*>(sequence.keys(l)),
                 .values = static_cast<T*>(sequence.values(l)),
                 .part_max = s.part_max,
                 .part_sum = s.part_sum,
                 .part_values = s.part_values,
                 .step = s.step,
                 .q_stride = q_stride,
                 .k_offset = k_offset,
                 .v_offset = v_offset,
                 .capacity = sequence.capacity(),
                 .head_dim = c.head_dim,
                 .rope_dims = c.rope_dims,
                 .group = group,
                 .eps = c.rms_eps});
    };
    RL_CHECK(n == 1);
    if (sequence.half_kv()) {
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
    // x[n][n_embd] += output * core
    project({.x = s.core, .n = c.n_heads * c.head_dim, .rounded = s.core_rounded}, a.output, n, shown, s.x,
            n_embd);
  } else {
    const DeviceDeltaNet& d = w.delta;

    // proj[n][q | k | v | z | beta | alpha], or as the file has them: DeltaHead
    project(mixer_input, d.in, n, s.proj, nullptr, s.proj_width);
    show(Stage::MixerInput, l, n_embd, n, shown);

    // core[n][n_v_heads][state_dim], but for its RMS norm; states and histories advance
    launch<DeltaStep>(DeltaStep::grid(c.n_v_heads, c.state_dim), 0,
                      {.proj = s.proj,
                       .heads = d.heads,
                       .conv = d.conv,
                       .dt = d.dt,
                       .a = d.a,
                       .history = sequence.history(l),
                       .state = sequence.matrices(l),
                       .weight = d.norm,
                       .core = s.core,
                       .rounded = takes_floats(d.output.parts[0].matrix.type) ? nullptr : s.core_rounded,
                       .squares = s.core_squares,
                       .step = s.step,
                       .proj_stride = s.proj_width,
                       .n_tokens = n,
                       .taps = c.conv_kernel,
                       .conv_dim = c.conv_dim(),
                       .key_dim = c.key_dim(),
                       .dim = c.state_dim,
                       .eps = c.rms_eps});
    // x[n][n_embd] += output * (norm(core) * SiLU(z))
    project({.x = s.core,
             .n = c.value_dim(),
             .eps = c.rms_eps,
             .rounded = s.core_rounded,
             .squares = s.core_squares,
             .dim = c.state_dim,
             .n_squares = DeltaStep::slices(c.state_dim)},
            d.output, n, shown, s.x, n_embd);
  }
  show(Stage::MixerOutput, l, n_embd, n, shown);

  // h[n][n_embd], the experts' input; router[n][n_experts (+ 1)], ids and shares of the selected experts
  const int n_rows = c.n_experts + (w.experts.has_shared ? 1 : 0);
  const bool joining = std::exchange(joins, false);
  if (joining) stream->wait(*joined);
  launch<Route>({Route::blocks(n_rows), tokens}, Route::dynamic_shared(n_embd),
                {.x = s.x,
                 .weight = w.ffn_norm,
                 .router = w.router,
                 .input = s.h,
                 .rounded = s.h_rounded,
                 .logits = s.router,
                 .ids = s.ids,
                 .shares = s.shares,
                 .slots = s.slots,
                 .table = w.table,
                 .host = host ? host->slots(l) : HostSlots{},
                 .step = s.step,
                 .tickets = s.tickets,
                 .eps = c.rms_eps,
                 .scale = c.expert_weights_scale,
                 .n = n_embd,
                 .n_experts = c.n_experts,
                 .n_used = c.n_experts_used,
                 .n_rows = n_rows},
                !joining);
  show(Stage::FfnInput, l, n_embd, n, s.h);
  if (tapped()) show_route(l, n);
}

void GpuRunner::Impl::encode_prefetch(int l) {
  const Scratch& s = scratch;
  Route::Params p{.x = s.h,  // x changes meanwhile
                  .weight = s.ones,
                  .router = weights.layer(l + 1).router,
                  .input = nullptr,
                  .rounded = nullptr,
                  .logits = s.predicted_router,
                  .ids = s.predicted_ids,
                  .shares = s.predicted_shares,
                  .slots = nullptr,
                  .table = weights.layer(l + 1).prefetch,
                  .host = host ? host->prediction(l + 1) : HostSlots{},
                  .step = s.step,
                  .tickets = s.tickets,
                  .eps = config.rms_eps,
                  .scale = config.expert_weights_scale,
                  .n = config.n_embd,
                  .n_experts = config.n_experts,
                  .n_used = config.n_experts_used,
                  .n_rows = config.n_experts};
  stream->record(*forked);
  beside->wait(*forked);
  beside->launch<Route>({.grid = {Route::blocks(config.n_experts), 1},
                         .threads = kStepThreads,
                         .dynamic_shared = Route::dynamic_shared(config.n_embd)},
                        p);
  if (!host) {
    beside->launch<LoadExperts>({.grid = {LoadExperts::kBlocks}, .threads = kStepThreads},
                                weights.load_params(l + 1));
  }
  beside->record(*joined);
  joins = true;
}

void GpuRunner::Impl::encode_segment(int segment, bool predict, bool wants_logits) {
  if (segment == 0) {
    encode_embedding(1);
  } else {
    if (predict && segment < config.n_layers) encode_prefetch(segment - 1);
    encode_experts(segment - 1, 1);
  }
  if (segment < config.n_layers) {
    encode_mixer(segment, 1);
  } else if (wants_logits) {
    encode_output(1, 1);
  }
}

void GpuRunner::Impl::place_experts(const GpuOptions& options) {
  const Placement p = choose_placement(model, *device, options.experts);
  placement = p.description;
  switch (p.residency) {
    case Residency::full:
      weights.place_all();
      break;
    case Residency::device:
      weights.place_cache(p.cache_bytes);
      break;
    case Residency::host: {
      HostOptions with_tier = options.experts.host;
      with_tier.tier = p.tier;
      const auto encode = [this](int segment, bool predict, bool logits_too) {
        encode_segment(segment, predict, logits_too);
      };
      host.emplace(model, *device, *stream, weights, p.cache_bytes, with_tier, encode,
                   profile ? &*profile : nullptr);
      host->set_slots_of_token(scratch.slots);
      skip = host->stop_flag();
      break;
    }
  }
  if (p.residency == Residency::full || !options.experts.host.prefetch) return;
  if (p.residency == Residency::device && !weights.prefetching()) return;
  beside = device->create_stream();
  forked = device->create_event();
  joined = device->create_event();
}

void GpuRunner::Impl::encode_experts(int l, int n) {
  const model::Config& c = config;
  const Scratch& s = scratch;
  const DeviceLayer& w = weights.layer(l);
  const uint32_t tokens = static_cast<uint32_t>(n);
  const int n_embd = c.n_embd;
  const Codebooks* books = weights.codebooks();
  const int32_t* slots = weights.residency() == Residency::full ? s.ids : s.slots;  // of the selected experts
  float* const shown = tapped() ? s.shown : nullptr;

  if (weights.residency() == Residency::device)
    launch<LoadExperts>({LoadExperts::kBlocks}, 0, weights.load_params(l));
  // hidden[n][n_all][ff] = SiLU(gate * h) . (up * h)
  const uint32_t n_all = static_cast<uint32_t>(w.experts.n_all());
  const ProductLayout gate_up = ExpertsGateUp::layout(w.experts, n_embd);
  launch<ExpertsGateUp>({ExpertsGateUp::blocks(std::max(c.expert_ff, c.shared_ff)), n_all, tokens},
                        gate_up.bytes,
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
  // x[n][n_embd] += sum of shares * (down * hidden)
  const ProductLayout down = ExpertsDown::layout(w.experts, s.hidden_stride);
  launch<ExpertsDown>({ExpertsDown::blocks(n_embd), tokens}, down.bytes,
                      {.experts = w.experts,
                       .hidden = s.hidden,
                       .hidden_rounded = s.hidden_rounded,
                       .slots = slots,
                       .shares = s.shares,
                       .residual = s.x,
                       .shown = shown,
                       .codebooks = books,
                       .hidden_stride = s.hidden_stride,
                       .n = n_embd,
                       .layout = down});
  show(Stage::FfnOutput, l, n_embd, n, shown);
  show(Stage::LayerOutput, l, n_embd, n, s.x);
}

// logits[n_logits][n_vocab] of the last tokens
void GpuRunner::Impl::encode_output(int n, int n_logits) {
  const model::Config& c = config;
  const Scratch& s = scratch;
  const int n_embd = c.n_embd;
  const int first = n - n_logits;
  float* const shown = tapped() ? s.shown : nullptr;
  project({.x = s.x + static_cast<size_t>(first) * static_cast<size_t>(n_embd),
           .n = n_embd,
           .weight = weights.output_norm(),
           .eps = c.rms_eps,
           .shown = shown},
          weights.output(), n_logits, s.logits, nullptr, c.n_vocab);
  show(Stage::FinalNorm, -1, n_embd, n_logits, shown, first);
  show(Stage::Logits, -1, c.n_vocab, n_logits, s.logits, first);
  launch<Best>({Best::blocks(c.n_vocab)}, 0,
               {.logits = s.logits + static_cast<size_t>(n_logits - 1) * static_cast<size_t>(c.n_vocab),
                .best = s.best,
                .ticket = s.best_ticket,
                .host = s.host_best.on_device<uint64_t>(),
                .n = c.n_vocab});
}

/// y[n][y_stride] = matrices * input, residual[n][y_stride] += that; either may be nullptr.
void GpuRunner::Impl::project(const ProjectInput& input, const Projection& matrices, int n, float* y,
                              float* residual, int y_stride) {
  Project::Params p{.input = input,
                    .parts = {},
                    .n_parts = matrices.n_parts,
                    .y = y,
                    .residual = residual,
                    .y_stride = y_stride,
                    .codebooks = weights.codebooks(),
                    .layout = matrices.layout};
  std::copy_n(matrices.parts, matrices.n_parts, p.parts);
  launch<Project>({static_cast<uint32_t>(matrices.n_blocks), static_cast<uint32_t>(n)}, matrices.layout.bytes,
                  p);
}

/// Shows values[n][width] in device memory, of tokens from number `first` of the chunk on, to the tap.
void GpuRunner::Impl::show(Stage stage, int layer, int width, int n, const float* values, int first) {
  if (!tapped()) return;
  std::vector<float> copy(static_cast<size_t>(n) * static_cast<size_t>(width));
  stream->copy(copy.data(), values, copy.size() * sizeof(float));
  stream->synchronize();
  (*tap)(stage, layer, sequence.position + first, width, copy);
}

void GpuRunner::Impl::show_route(int layer, int n) {
  const int used = config.n_experts_used, n_all = weights.layer(layer).experts.n_all();
  const int n_rows = config.n_experts + n_all - used;
  // Without what is the shared expert's.
  const auto show_columns = [&](Stage stage, const float* values, int stride, int width) {
    std::vector<float> all(static_cast<size_t>(n) * static_cast<size_t>(stride)), some;
    stream->copy(all.data(), values, all.size() * sizeof(float));
    stream->synchronize();
    for (int t = 0; t < n; ++t) some.insert(some.end(), &all[t * stride], &all[t * stride] + width);
    (*tap)(stage, layer, sequence.position, width, some);
  };
  show_columns(Stage::RouterLogits, scratch.router, n_rows, config.n_experts);
  std::vector<int32_t> ids(static_cast<size_t>(n) * static_cast<size_t>(used));
  stream->copy(ids.data(), scratch.ids, ids.size() * sizeof(int32_t));
  stream->synchronize();
  (*tap)(Stage::ExpertIds, layer, sequence.position, used, std::vector<float>(ids.begin(), ids.end()));
  show_columns(Stage::ExpertWeights, scratch.shares, n_all, used);
}

void GpuRunner::Impl::check(std::span<const Token> tokens) const {
  if (tokens.size() > static_cast<size_t>(sequence.capacity() - sequence.position)) {
    fail("{} tokens after {} do not fit into a context of {}; use a larger context or a shorter text",
         tokens.size(), sequence.position, sequence.capacity());
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= config.n_vocab)
      fail("token {} is outside the vocabulary: ids are 0 to {}", token, config.n_vocab - 1);
  }
}

void GpuRunner::Impl::forward_one(Token token, Output output) {
  const model::Matrix& embd = model.weights().token_embd;
  quant::decode(embd.type, embd.row(token), scratch.host_x.host<float>(), static_cast<size_t>(config.n_embd));
  *scratch.host_step.host<Step>() = {sequence.position, ++number, sequence.flip};

  const bool one_by_one = tapped() || profile;
  joins = false;
  if (host) {
    host->run(number, output != Output::none, !one_by_one);
  } else if (output != Output::none && !one_by_one) {
    if (!decode) decode = capture(*stream, [&] { encode(1, 1); });
    stream->replay(*decode);
  } else {
    encode(1, output == Output::none ? 0 : 1);
  }
  if (output == Output::logits)
    stream->copy(scratch.host_logits.host(), scratch.logits, scratch.host_logits.bytes());
  if (!host || output == Output::logits) stream->synchronize();
  sequence.position += 1;
  sequence.flip ^= 1;
}

GpuRunner::GpuRunner(const model::Model& model, std::unique_ptr<Device> device, const GpuOptions& options) {
  check_limits(model, options.batch);
  impl_ = std::make_unique<Impl>(model, std::move(device), options);
}
GpuRunner::~GpuRunner() = default;

std::span<const float> GpuRunner::forward(std::span<const Token> tokens, LogitsFor which) {
  Impl& impl = *impl_;
  const int n_vocab = impl.config.n_vocab;
  impl.check(tokens);
  impl.tap = &tap_;
  impl.logits.clear();
  const int n = static_cast<int>(tokens.size());
  for (int first = 0; first < n;) {
    const int size = impl.chunk(n - first);
    const std::span<const Token> chunk =
        tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(size));
    const bool last = first + size == n;
    const int n_logits = which == LogitsFor::All ? size : which == LogitsFor::Last && last ? 1 : 0;
    if (size > 1) {
      impl.prefill->run(impl.launcher(), chunk, impl.sequence.position, impl.sequence.flip, n_logits, tap_,
                        impl.logits);
      impl.sequence.position += size;
      impl.sequence.flip ^= 1;
    } else {
      impl.forward_one(chunk[0], n_logits > 0 ? Impl::Output::logits : Impl::Output::none);
      const std::span<const float> row(impl.scratch.host_logits.host<float>(),
                                       static_cast<size_t>(n_logits * n_vocab));
      if (n == 1) return row;
      impl.logits.insert(impl.logits.end(), row.begin(), row.end());
    }
    first += size;
    if (progress_ && n > 1) progress_(static_cast<double>(first));
  }
  return impl.logits;
}

int32_t best_of(uint64_t told) {
  const auto order = static_cast<uint32_t>(told >> 32);  // expert_order()
  const float logit = std::bit_cast<float>((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
  if (!std::isfinite(logit)) fail("the model's logits are not finite: its weights must be damaged");
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(told));
}

Token GpuRunner::forward_best(std::span<const Token> tokens) {
  if (tokens.size() != 1) return Runner::forward_best(tokens);
  Impl& impl = *impl_;
  impl.check(tokens);
  impl.tap = &tap_;
  impl.logits.clear();
  impl.forward_one(tokens[0], Impl::Output::best);
  return best_of(*impl.scratch.host_best.host<uint64_t>());
}

std::vector<Token> GpuRunner::forward_best_together(std::span<const model::Part> parts) {
  RL_CHECK(parts.size() == 1, "{} sequences in a runner of one", parts.size());
  return {forward_best(parts[0].tokens)};
}

int GpuRunner::position() const {
  return impl_->sequence.position;
}
int GpuRunner::capacity() const {
  return impl_->sequence.capacity();
}
void GpuRunner::reset() {
  impl_->sequence.reset(*impl_->stream);
}
std::unique_ptr<model::Mark> GpuRunner::mark() const {
  return OwnSequence(impl_->sequence, *impl_->stream).mark();
}
void GpuRunner::rewind(const model::Mark& mark) {
  OwnSequence(impl_->sequence, *impl_->stream).rewind(mark);
}
std::unique_ptr<model::Sequence> GpuRunner::make_sequence() {
  return std::make_unique<OwnSequence>(impl_->sequence, *impl_->stream);
}
std::string GpuRunner::state_format() const {
  const DeviceInfo& device = impl_->device->info();
  return fmt::format("{}, {} multiprocessors, {} keys and values", device.name, device.multiprocessors,
                     impl_->sequence.half_kv() ? "f16" : "f32");
}

const Device& GpuRunner::device() const {
  return *impl_->device;
}
Residency GpuRunner::residency() const {
  return impl_->weights.residency();
}
std::string GpuRunner::description() const {
  return impl_->host ? fmt::format("{}; {}", impl_->placement, impl_->host->description()) : impl_->placement;
}
DeviceUse GpuRunner::device_use() const {
  const Impl& impl = *impl_;
  return {.cache = impl.weights.cache_bytes(),
          .dense = impl.weights.dense_bytes(),
          .state = impl.sequence.bytes(),
          .scratch = impl.scratch.bytes() + (impl.host ? impl.host->scratch_bytes() : 0) +
                     (impl.prefill ? impl.prefill->bytes() : 0)};
}
const HostDecode* GpuRunner::host_decode() const {
  return impl_->host ? &*impl_->host : nullptr;
}
const Profile* GpuRunner::profile() const {
  return impl_->profile ? &*impl_->profile : nullptr;
}
void GpuRunner::set_profile(bool on) {
  RL_CHECK(!impl_->host);
  impl_->profile.reset();
  if (on) impl_->profile.emplace(*impl_->device, *impl_->stream);
}
std::vector<experts::ExpertUse> GpuRunner::expert_uses() const {
  return impl_->host ? impl_->host->uses() : impl_->weights.uses(*impl_->stream);
}
experts::CacheStats GpuRunner::cache_stats() const {
  experts::CacheStats out;
  if (impl_->host) {
    const HostWalkStatistics s = impl_->host->statistics();
    const experts::CacheStats tier = impl_->host->tier_statistics();
    out.hits = s.hits;
    out.misses = s.misses + s.late;
    out.prefetched = s.prefetched;
    out.prefetch_useful = s.prefetch_useful;
    out.bytes_read = tier.bytes_read;
    out.stall_seconds = tier.stall_seconds;
  } else {
    for (const experts::ExpertUse& use : expert_uses()) {
      out.hits += use.hits;
      out.misses += use.misses;
      out.prefetched += use.prefetches;
    }
    out.bytes_read = slot_statistics().bytes_copied;
  }
  return out;
}
GpuRunner::Selections GpuRunner::selections() const {
  if (impl_->host) {
    const HostWalkStatistics s = impl_->host->statistics();
    return {s.hits, s.hits + s.late + s.misses};
  }
  const SlotStatistics s = slot_statistics();
  return {s.hits, s.hits + s.misses};
}
bool GpuRunner::streams(int n) const {
  return residency() == Residency::device && impl_->chunk(n) > 1;
}
uint64_t GpuRunner::early_starts() const {
  return impl_->early_starts;
}
SlotStatistics GpuRunner::slot_statistics() const {
  return impl_->weights.statistics(*impl_->stream);
}
size_t GpuRunner::graph_kernels() const {
  return impl_->decode ? impl_->decode->kernels() : 0;
}

}  // namespace redlite::gpu
