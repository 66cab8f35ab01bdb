#include "gpu/gpu_runner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/device_model.h"
#include "gpu/launcher.h"
#include "gpu/limits.h"
#include "gpu/own_sequence.h"
#include "gpu/prefill.h"
#include "gpu/scratch.h"
#include "gpu/sequence.h"
#include "gpu/token_pass.h"
#include "quant/decode.h"

namespace redlite::gpu {

using model::LogitsFor;
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
        scratch(*device, config, 1, sequence.capacity()),
        pass(*stream, config, weights, sequence, scratch, concurrent) {
    set_profile(options.profile);
    prefill.emplace(*device, model, weights, sequence, scratch, std::min(options.batch, sequence.capacity()));
    scratch.begin(*stream);
    sequence.reset(*stream);
    place_experts(options);
    if (weights.residency() == Residency::full) {
      prefill->experts_are_placed({});
    } else {
      prefill->experts_are_placed(host ? host->supply() : ExpertSupply{.files = weights.files()});
    }
    streamed_from = std::max(2, options.streamed_from);
    stream->synchronize();
  }

  /// Last of all that takes device memory: what is left is known then.
  void place_experts(const GpuOptions& options);
  /// Tokens that the next chunk of n has: 1 where they are computed one by one.
  int chunk(int n) const {
    const bool one_by_one = weights.residency() == Residency::device && n < streamed_from;
    return one_by_one ? 1 : std::min(n, prefill->batch());
  }

  /// What a pass leaves for the host.
  enum class Output : uint8_t { none, best, logits };
  /// Throws Error unless the tokens can be appended.
  void check(std::span<const Token> tokens) const;
  void forward_one(Token token, Output output);

  void set_profile(bool on) {
    profile.reset();
    if (on) profile.emplace(*device, *stream);
    pass.set_profile(profile ? &*profile : nullptr);
  }
  Launcher launcher() { return {*stream, concurrent, profile ? &*profile : nullptr}; }

  const model::Model& model;
  const model::Config& config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  bool concurrent;
  std::optional<Profile> profile;
  DeviceModel weights;
  Sequence sequence;
  Scratch scratch;
  TokenPass pass;
  std::optional<Prefill> prefill;  ///< always there
  int streamed_from = 0;           ///< as in GpuOptions
  std::unique_ptr<Graph> decode;   ///< a whole pass, captured
  std::unique_ptr<Event> graph_start = device->create_event(), graph_end = device->create_event();
  GraphTime graph_time;
  std::string placement;
  std::optional<HostDecode> host;  ///< Residency::host
  uint32_t number = 0;             ///< Step::number of the last pass
  std::vector<float> logits;       ///< of the last call, where they are of several chunks
};

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
        pass.segment(segment, predict, logits_too);
      };
      host.emplace(model, *device, *stream, weights, p.cache_bytes, with_tier, encode,
                   profile ? &*profile : nullptr);
      host->set_slots_of_token(scratch.slots);
      pass.use_host(*host);
      break;
    }
  }
  if (p.residency == Residency::full || !options.experts.host.prefetch) return;
  if (p.residency == Residency::device && !weights.prefetching()) return;
  pass.use_prefetch(*device);
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

  const bool one_by_one = pass.tapped() || profile;
  const bool replayed = !host && output != Output::none && !one_by_one;
  if (host) {
    host->run(number, output != Output::none, !one_by_one);
  } else if (replayed) {
    if (!decode) decode = capture(*stream, [&] { pass.encode(true); });
    stream->record(*graph_start);
    stream->replay(*decode);
  } else {
    pass.encode(output != Output::none);
  }
  if (output == Output::logits)
    stream->copy(scratch.host_logits.host(), scratch.logits, scratch.host_logits.bytes());
  if (replayed) stream->record(*graph_end);
  if (!host || output == Output::logits) stream->synchronize();
  if (replayed) {
    ++graph_time.tokens;
    graph_time.seconds += graph_end->milliseconds_since(*graph_start) / 1000;
  }
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
  impl.pass.set_tap(tap_);
  impl.logits.clear();
  const int n = static_cast<int>(tokens.size());
  for (int first = 0; first < n;) {
    const int size = impl.chunk(n - first);
    const std::span<const Token> chunk =
        tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(size));
    const bool last = first + size == n;
    const int n_logits = which == LogitsFor::All ? size : which == LogitsFor::Last && last ? 1 : 0;
    if (size > 1) {
      if (impl.host) impl.host->pause();
      impl.prefill->run(impl.launcher(), chunk, impl.sequence.position, impl.sequence.flip,
                        size >= impl.streamed_from, n_logits, tap_, impl.logits);
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
  impl.pass.set_tap(tap_);
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
  return {
      .cache = impl.weights.cache_bytes(),
      .dense = impl.weights.dense_bytes(),
      .state = impl.sequence.bytes(),
      .scratch = impl.scratch.bytes() + (impl.host ? impl.host->scratch_bytes() : 0) + impl.prefill->bytes()};
}
const HostDecode* GpuRunner::host_decode() const {
  return impl_->host ? &*impl_->host : nullptr;
}
const Profile* GpuRunner::profile() const {
  return impl_->profile ? &*impl_->profile : nullptr;
}
void GpuRunner::set_profile(bool on) {
  RL_CHECK(!impl_->host);
  impl_->set_profile(on);
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
  return residency() != Residency::full && impl_->chunk(n) >= impl_->streamed_from;
}
GpuRunner::GraphTime GpuRunner::graph_time() const {
  return impl_->graph_time;
}
uint64_t GpuRunner::early_starts() const {
  return impl_->pass.early_starts();
}
SlotStatistics GpuRunner::slot_statistics() const {
  return impl_->weights.statistics(*impl_->stream);
}
uint64_t GpuRunner::prompt_bytes() const {
  return impl_->prefill->bytes_copied();
}
size_t GpuRunner::graph_kernels() const {
  return impl_->decode ? impl_->decode->kernels() : 0;
}

}  // namespace redlite::gpu
