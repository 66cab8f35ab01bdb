#include "cpu/cpu_runner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/memory.h"
#include "cpu/runner_impl.h"
#include "quant/decode.h"

namespace redlite::cpu {

using model::LayerKind;
using model::Stage;
using model::Token;

// The whole model for a chunk of n tokens.
void CpuRunner::Impl::forward_chunk(float* out) {
  const model::Config& c = config;
  const int n = chunk.n();
  const size_t n_embd = c.n_embd;
  float* const x = scratch.x;  // x[n][n_embd], the residual
  float* const y = scratch.y;  // y[n][n_embd], what is added to it
  lap_start = std::chrono::steady_clock::now();
  scratch.embd_rows.resize(n, c.n_embd);

  // x = rows of the embedding; rotations of these positions
  for_tokens(n, [&](int t) {
    const Token token = chunk.tokens[t];
    quant::decode(weights.token_embd.type, weights.token_embd.row(token), x + t * n_embd, n_embd);
  });
  for (const Run& run : chunk.runs) {
    for_tokens(run.n, [&](int t) {
      float* const table = scratch.rope + static_cast<size_t>(run.first + t) * c.rope_dims;
      for (int i = 0; i < c.rope_dims / 2; ++i) {
        const double angle = (run.sequence->position() + t) * rope_frequencies[i];
        table[i] = static_cast<float>(std::cos(angle));
        table[c.rope_dims / 2 + i] = static_cast<float>(std::sin(angle));
      }
    });
  }
  show(Stage::Embedding, -1, 0, c.n_embd, n, x);
  lap(times.embedding);

  for (int layer = 0; layer < c.n_layers; ++layer) {
    const model::LayerWeights& w = weights.layers[layer];
    const bool attends = c.layers[layer] == LayerKind::Attention;

    // h[n][n_embd], the mixer's input
    for_tokens(n, [&](int t) { norm(t, t, w.attn_norm); });
    show(Stage::MixerInput, layer, 0, c.n_embd, n, scratch.h);

    if (attends) {
      attention(layer, n);
    } else {
      delta_net(layer, n);
    }
    show(Stage::MixerOutput, layer, 0, c.n_embd, n, y);
    lap(attends ? times.attention : times.delta_net);

    // x += y; h[n][n_embd], the experts' input
    for_tokens(n, [&](int t) {
      mixers.add_scaled(y + t * n_embd, 1, c.n_embd, x + t * n_embd);
      norm(t, t, w.ffn_norm);
    });
    show(Stage::FfnInput, layer, 0, c.n_embd, n, scratch.h);

    route(layer, n);
    lap(times.router);

    experts_ffn(layer, n);
    show(Stage::FfnOutput, layer, 0, c.n_embd, n, y);

    for_tokens(n, [&](int t) { mixers.add_scaled(y + t * n_embd, 1, c.n_embd, x + t * n_embd); });
    show(Stage::LayerOutput, layer, 0, c.n_embd, n, x);
    lap(times.experts);
    if (after_layer) after_layer(layer + 1);
  }

  // logits[n_logits][n_vocab] of the rows that want them, which move together
  const int n_logits = static_cast<int>(chunk.logit_rows.size());
  const int first = n_logits > 0 ? chunk.logit_rows[0] : n;
  for_tokens(n_logits, [&](int i) { norm(chunk.logit_rows[i], i, weights.output_norm); });
  show(Stage::FinalNorm, -1, first, c.n_embd, n_logits, scratch.h);
  if (n_logits > 0) {
    products.assign({{weights.output, &scratch.embd_rows, 0, n_logits, out, static_cast<size_t>(c.n_vocab)}});
    multiply(products);
  }
  show(Stage::Logits, -1, first, c.n_vocab, n_logits, out);
  for (const Run& run : chunk.runs) run.sequence->advance(run.n);
  lap(times.output);
}

void CpuRunner::Impl::norm(int from, int to, const model::Vector& weight) {
  const size_t n_embd = config.n_embd;
  kernels.rms_norm(scratch.x + from * n_embd, weight.data(), config.rms_eps, config.n_embd,
                   scratch.h + to * n_embd);
  kernels.quantize(scratch.h, n_embd, to, to + 1, scratch.embd_rows);
}

void CpuRunner::Impl::multiply(std::span<const Product> parts, const std::function<void()>& beside) {
  // Multiply-adds of a piece: at least what outweighs a claim and a cold start, at most what lets all threads
  // end at the same time.
  constexpr int64_t kLeastWork = 1 << 17;
  constexpr int kTokens = 128;  // their activations stay in the second-level cache while rows stream by
  int64_t work = 0;
  for (const Product& p : parts) work += int64_t{p.w.rows} * p.w.cols * (p.t_last - p.t_first);
  const int64_t piece_work = std::max(kLeastWork, work / (32 * pool.size()));

  cuts.clear();
  int pieces = 0;
  for (const Product& p : parts) {
    const int tokens = std::min(kTokens, p.t_last - p.t_first);
    const int64_t rows = (piece_work / (int64_t{p.w.cols} * tokens) + 7) / 8 * 8;
    const int piece_rows = static_cast<int>(std::clamp<int64_t>(rows, 8, p.w.rows + 7));
    const int row_pieces = (p.w.rows + piece_rows - 1) / piece_rows;
    cuts.push_back({piece_rows, row_pieces, pieces});
    pieces += row_pieces * ((p.t_last - p.t_first + kTokens - 1) / kTokens);
  }

  pool.run(
      pieces, 1,
      [&](int begin, int end, int) {
        for (int piece = begin; piece < end; ++piece) {
          const auto after =
              std::upper_bound(cuts.begin(), cuts.end(), piece,
                               [](int number, const Cut& cut) { return number < cut.first_piece; });
          const Cut& cut = *(after - 1);
          const Product& p = parts[static_cast<size_t>(after - 1 - cuts.begin())];
          const int row = (piece - cut.first_piece) % cut.row_pieces * cut.rows;
          const int token = p.t_first + (piece - cut.first_piece) / cut.row_pieces * kTokens;
          kernels.multiply(p.w, row, std::min(row + cut.rows, p.w.rows), *p.x, token,
                           std::min(token + kTokens, p.t_last), p.y + p.y_stride * (token - p.t_first),
                           p.y_stride);
        }
      },
      beside);
}

namespace {

constexpr quant::Type kRouterType = quant::Type::BF16;
constexpr quant::Type kPredictorType = quant::Type::Q8_0;

const Kernels& choose_kernels(const std::string& name) {
  if (name.empty()) return best_kernels();
  if (const Kernels* kernels = find_kernels(name)) return *kernels;
  fail("no kernels named '{}' on this processor; there are: {}", name, fmt::join(available_kernels(), ", "));
}

const MixerKernels& choose_mixers(std::string_view name) {
  const MixerKernels* mixers = find_mixer_kernels(name);
  return mixers != nullptr ? *mixers : kScalarMixerKernels;
}

int choose_context(const model::Config& config, const CpuOptions& options) {
  if (options.context < 0) fail("a context of {} tokens; use a positive number", options.context);
  return options.context > 0 ? options.context : std::min(config.context_length, 4096);
}

int choose_batch(const model::Config& config, const CpuOptions& options) {
  if (options.batch < 1) fail("a batch of {} tokens; use at least 1", options.batch);
  return std::min(options.batch, choose_context(config, options));
}

int choose_threads(const CpuOptions& options) {
  if (options.threads < 0) fail("{} threads; use a positive number, or 0 for all cores", options.threads);
  return options.threads > 0 ? options.threads : available_threads();
}

DeltaOffsets delta_offsets_of(const model::Config& c, const model::DeltaNetWeights& w) {
  DeltaOffsets at;
  at.v_heads.resize(c.n_k_heads);
  const int dim = c.state_dim;
  const int per_k = c.n_v_heads / c.n_k_heads;
  const int gates = c.conv_dim() + c.value_dim();  // beta and alpha, or ba, come behind the rest
  for (int k = 0; k < c.n_k_heads; ++k) {
    at.q.push_back(w.qkv ? k * dim : k * (2 + 2 * per_k) * dim);
    at.k.push_back(w.qkv ? c.key_dim() + k * dim : at.q[k] + dim);
  }
  for (int v = 0; v < c.n_v_heads; ++v) {
    at.v_heads[c.k_head_of(v)].push_back(v);
    const int k = v / per_k;  // in whose part of the older layout it lies
    at.v.push_back(w.qkv ? 2 * c.key_dim() + v * dim : at.q[k] + (2 + v % per_k) * dim);
    at.z.push_back(w.qkv ? c.conv_dim() + v * dim : at.q[k] + (2 + per_k + v % per_k) * dim);
    at.beta.push_back(gates + (w.beta ? v : 2 * k * per_k + v % per_k));
    at.alpha.push_back(gates + (w.beta ? c.n_v_heads + v : (2 * k + 1) * per_k + v % per_k));
  }
  return at;
}

std::vector<float> transposed_conv(const model::Config& c, const model::Vector& conv) {
  std::vector<float> out(conv.size());
  const size_t channels = c.conv_dim();
  const size_t taps = c.conv_kernel;
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t i = 0; i < taps; ++i) out[i * channels + channel] = conv[channel * taps + i];
  return out;
}

/// Whether all that this run may take, and a reserve, is there. Of an embedding that is not the output, too,
/// few rows are touched.
bool has_room(const model::Model& model, const CpuOptions& options) {
  constexpr uint64_t kReserve = uint64_t{256} << 20;
  const CpuRunner::Memory needed = CpuRunner::memory_needed(model, options);
  const bool full = options.cache.size.kind == experts::CacheSize::Kind::Full;
  const uint64_t cache = full ? model.expert_bytes() : options.cache.size.bytes;
  const model::Weights& w = model.weights();
  const uint64_t rows_only = w.token_embd.data == w.output.data ? 0 : w.token_embd.bytes();
  return available_memory() >= cache + needed.dense - rows_only + needed.state + needed.scratch + kReserve;
}

}  // namespace

CpuRunner::Impl::Impl(const model::Model& m, const CpuOptions& options)
    : model(m),
      config(m.config()),
      weights(m.weights()),
      kernels(choose_kernels(options.kernels)),
      mixers(choose_mixers(kernels.name)),
      kv_type(options.kv),
      capacity(choose_context(config, options)),
      pool(choose_threads(options)),
      cache(m, options.cache),
      own(config, kv_type, capacity),
      scratch(config, choose_batch(config, options), pool.size()),
      weight_pages(m, options.cache.size.kind == experts::CacheSize::Kind::Full, has_room(m, options)),
      routers(weights, kRouterType, RouterCopies::Loss::None),
      predictors(weights, kPredictorType, RouterCopies::Loss::Allowed) {
  const model::Config& c = config;
  if (c.conv_kernel > kMaxConvTaps)
    fail("{}: a convolution of {} taps; at most {} are supported", m.path(), c.conv_kernel, kMaxConvTaps);
  delta_offsets.resize(c.n_layers);
  conv.resize(c.n_layers);
  int seen[2] = {0, 0};
  for (int layer = 0; layer < c.n_layers; ++layer) {
    index_in_kind.push_back(seen[static_cast<int>(c.layers[layer])]++);
    if (c.layers[layer] != LayerKind::DeltaNet) continue;
    const model::DeltaNetWeights& w = weights.layers[layer].delta;
    delta_offsets[layer] = delta_offsets_of(c, w);
    conv[layer] = transposed_conv(c, w.conv);
  }
  for (int i = 0; i < c.rope_dims / 2; ++i)
    rope_frequencies.push_back(std::pow(static_cast<double>(c.rope_base), -2.0 * i / c.rope_dims));
}

CpuRunner::CpuRunner(const model::Model& model, const CpuOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}

CpuRunner::~CpuRunner() = default;

std::span<const float> CpuRunner::forward(std::span<const Token> tokens, model::LogitsFor which) {
  const model::Part part{&impl_->own, tokens, which};
  return forward_together({&part, 1});
}

std::span<const float> CpuRunner::forward_together(std::span<const model::Part> parts) {
  Impl& impl = *impl_;
  const int n_vocab = impl.config.n_vocab;
  size_t n = 0, n_logits = 0;
  for (const model::Part& part : parts) {
    const int position = part.sequence->position(), room = part.sequence->capacity() - position;
    if (part.tokens.size() > static_cast<size_t>(room)) {
      fail("{} tokens after {} do not fit into a context of {}; use a larger context or a shorter text",
           part.tokens.size(), position, part.sequence->capacity());
    }
    for (const Token token : part.tokens) {
      if (token < 0 || token >= n_vocab)
        fail("token {} is outside the vocabulary: ids are 0 to {}", token, n_vocab - 1);
    }
    n += part.tokens.size();
    if (part.which == model::LogitsFor::All) n_logits += part.tokens.size();
    if (part.which == model::LogitsFor::Last && !part.tokens.empty()) ++n_logits;
  }
  RL_CHECK(parts.size() == 1 || !tap_, "a tap sees one sequence, not {}", parts.size());

  impl.tap = &tap_;
  impl.logits.resize(n_logits * n_vocab);
  float* logits = impl.logits.data();
  size_t done = 0;
  impl.after_layer = [&, n_layers = impl.config.n_layers](int layers_done) {
    if (stop_ && stop_()) throw model::Stopped();
    if (progress_ && n > 1)
      progress_(static_cast<double>(done) + static_cast<double>(impl.chunk.n()) * layers_done / n_layers);
  };
  const auto compute = [&] {
    impl.forward_chunk(logits);
    done += impl.chunk.tokens.size();
    logits += impl.chunk.logit_rows.size() * n_vocab;
    impl.chunk.clear();
  };
  impl.chunk.clear();
  for (const model::Part& part : parts) {
    auto* sequence = dynamic_cast<CpuSequence*>(part.sequence);
    RL_CHECK(sequence != nullptr, "another runner's sequence");
    for (size_t first = 0; first < part.tokens.size();) {
      const int row = impl.chunk.n();
      const std::span<const Token> run =
          part.tokens.subspan(first, std::min<size_t>(impl.scratch.batch - row, part.tokens.size() - first));
      first += run.size();
      const int count = static_cast<int>(run.size());
      impl.chunk.tokens.insert(impl.chunk.tokens.end(), run.begin(), run.end());
      impl.chunk.runs.push_back({sequence, row, count});
      const bool last = part.which == model::LogitsFor::Last && first == part.tokens.size();
      const int wanted = part.which == model::LogitsFor::All ? count : last ? 1 : 0;
      for (int i = count - wanted; i < count; ++i) impl.chunk.logit_rows.push_back(row + i);
      if (impl.chunk.n() == impl.scratch.batch) compute();
    }
  }
  if (impl.chunk.n() > 0) compute();
  return impl.logits;
}

int CpuRunner::position() const {
  return impl_->own.position();
}

int CpuRunner::capacity() const {
  return impl_->capacity;
}

void CpuRunner::reset() {
  impl_->own.reset();
}

std::unique_ptr<model::Mark> CpuRunner::mark() const {
  return impl_->own.mark();
}

void CpuRunner::rewind(const model::Mark& mark) {
  impl_->own.rewind(mark);
}

int CpuRunner::most_sequences() const {
  return impl_->scratch.batch;
}

std::unique_ptr<model::Sequence> CpuRunner::make_sequence() {
  return std::make_unique<CpuSequence>(impl_->config, impl_->kv_type, impl_->capacity);
}

std::string CpuRunner::state_format() const {
  return impl_->kv_type == KvType::F16 ? "cpu, f16 keys and values" : "cpu, f32 keys and values";
}

experts::CacheStats CpuRunner::cache_stats() const {
  return impl_->cache.stats();
}

std::vector<experts::ExpertUse> CpuRunner::expert_uses() const {
  return impl_->cache.uses();
}

std::optional<model::Model::Expert> CpuRunner::expert_in_memory(int layer, int expert) const {
  return impl_->cache.find(layer, expert);
}

std::string CpuRunner::cache_io() const {
  return impl_->cache.io();
}

StageTimes CpuRunner::stage_times() const {
  return impl_->times;
}

WeightPages::Report CpuRunner::weight_pages() const {
  return impl_->weight_pages.report();
}

void CpuRunner::wait_for_weight_pages() {
  impl_->weight_pages.wait();
}

std::string_view CpuRunner::kernels() const {
  return impl_->kernels.name;
}

int CpuRunner::threads() const {
  return impl_->pool.size();
}

CpuRunner::Memory CpuRunner::memory_needed(const model::Model& model, const CpuOptions& options) {
  const model::Config& c = model.config();
  const uint64_t logits = static_cast<uint64_t>(c.n_vocab) * sizeof(float);
  uint64_t routers = RouterCopies::bytes_needed(model.weights(), kRouterType);
  if (options.cache.prefetch && options.cache.size.kind == experts::CacheSize::Kind::Bounded)
    routers += RouterCopies::bytes_needed(model.weights(), kPredictorType);
  return {
      .dense = model.dense_bytes(),
      .state = KvCache::bytes_needed(c, options.kv, choose_context(c, options)) + DeltaState::bytes_needed(c),
      .scratch =
          Scratch::bytes_needed(c, choose_batch(c, options), choose_threads(options)) + logits + routers};
}

}  // namespace redlite::cpu
