#include "gpu/host_decode.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/error.h"
#include "gpu/kernels/route.h"

namespace redlite::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

/// The end of the largest piece that begins with segment `first`: pieces are aligned to their size, a power
/// of two, so that any window is made of few of them and there are few of them in all.
int piece_end(int first, int last) {
  int size = 1;
  while (first % (2 * size) == 0 && first + 2 * size <= last) size *= 2;
  return first + size;
}

/// Where both tiers are bounded, and have the same classes: types of one size in the file can have two on the
/// device.
std::optional<experts::TwoTiers> make_tiers(const model::Model& model, const HostOptions& options) {
  const std::vector<int> classes = device_slot_classes(model).class_of_layer;
  if (options.tier.kind == experts::CacheSize::Kind::Full ||
      classes != experts::size_classes(experts::expert_files(model)).class_of_layer)
    return std::nullopt;
  return experts::TwoTiers(classes, model.config().n_experts, model.config().n_experts_used);
}

experts::ExpertPool make_pool(const model::Model& model, uint64_t bytes,
                              std::unique_ptr<experts::EvictionOrder> order) {
  const experts::SizeClasses sizes = device_slot_classes(model);
  const int n_used = model.config().n_experts_used;
  return {sizes.class_of_layer, model.config().n_experts,
          experts::divide(sizes, n_used, std::min(bytes, sizes.full_bytes())), std::move(order)};
}

std::unique_ptr<experts::EvictionOrder> least_recently_used() {
  return std::make_unique<experts::LeastRecentlyUsed>();
}

}  // namespace

uint64_t HostDecode::least_cache_bytes(const model::Model& model) {
  return device_slot_classes(model).minimum_bytes(model.config().n_experts_used);
}

HostDecode::HostDecode(const model::Model& model, Device& device, Stream& stream, DeviceModel& weights,
                       uint64_t cache_bytes, const HostOptions& options, Encode encode, Profile* profile)
    : config_(model.config()),
      device_(device),
      stream_(stream),
      weights_(weights),
      options_(options),
      encode_(std::move(encode)),
      profile_(profile),
      tiers_(make_tiers(model, options)),
      pool_(make_pool(model, cache_bytes, tiers_ ? tiers_->near_order() : least_recently_used())),
      source_(experts::expert_files(model), {options.tier, options.prefetch, options.io},
              options.reader ? options.reader() : nullptr,
              tiers_ ? tiers_->far_order() : least_recently_used()),
      mapped_expert_(model.mapped_expert(0, 0)),
      scratch_(device, "the early-out flag", 0) {
  const auto n_layers = static_cast<size_t>(config_.n_layers);
  weights.place_slots(pool_);
  if (options.tier.kind == experts::CacheSize::Kind::Full) {
    files_.emplace(device, experts::expert_files(model));
  } else {
    const std::span<std::byte> memory = source_.memory();
    tier_ = device.register_host(memory.data(), memory.size(), false, "the host's expert cache");
  }
  table_ = device.allocate_host(n_layers * static_cast<size_t>(config_.n_experts) * sizeof(uint64_t),
                                "the table of slots");
  std::fill_n(table_.host<uint64_t>(), table_.bytes() / sizeof(uint64_t), uint64_t{0});
  records_ =
      device.allocate_host((1 + Route::kMostAhead) * n_layers * sizeof(RouteRecord), "the routers' records");
  std::fill_n(records_.host<RouteRecord>(), (1 + Route::kMostAhead) * n_layers, RouteRecord{});
  stop_ = scratch_.take<uint32_t>(1);
  stream.fill(stop_, 0, sizeof(uint32_t));
  beside_ = device.create_stream();
  beside_over_ = device.create_event();
}

HostDecode::~HostDecode() = default;

HostSlots HostDecode::slots(int l) const {
  return {table_.on_device<uint64_t>() + static_cast<size_t>(l) * static_cast<size_t>(config_.n_experts),
          records_.on_device<RouteRecord>() + l, stop_};
}

/// Those behind the next one only say what to read from the file meanwhile.
int HostDecode::predicted_layers() const {
  if (!options_.prefetch) return 0;
  return files_ ? 1 : Route::kMostAhead;
}

HostSlots HostDecode::prediction(int l, int distance) const {
  return {nullptr, records_.on_device<RouteRecord>() + distance * config_.n_layers + l, nullptr};
}

void HostDecode::run(uint32_t number, bool logits, bool graphs) {
  number_ = number;
  logits_ = logits;
  graphs_on_ = graphs;
  if (!walk_) {
    walk_.emplace(HostWalk::Sizes{config_.n_layers, config_.n_experts, config_.n_experts_used}, pool_,
                  source_, table_.host<uint64_t>(), Lookahead(1, 1, {}), predicted_layers());
  }
  if (graphs && !lookahead_chosen_) {
    walk_->set_lookahead(choose_lookahead());
    lookahead_chosen_ = true;
  }
  try {
    walk_->token(*this, graphs ? config_.n_layers + 1 : 1);
    stream_.synchronize(options_.patience);
    walk_->finish();
  } catch (const Error&) {
    // The error that is thrown on is the one that tells what happened.
    for (Stream* stream : {&stream_, beside_.get()}) {
      try {
        stream->synchronize(options_.patience);
      } catch (const Error&) {
      }
    }
    walk_->abandon();
    throw;
  }
}

void HostDecode::pause() {
  if (!walk_) return;
  try {
    beside_->synchronize(options_.patience);
    walk_->pause();
  } catch (const Error&) {
    walk_->abandon();
    throw;
  }
}

ExpertSupply HostDecode::supply() {
  return {.files = files_ ? &*files_ : nullptr,
          .cache = files_ ? nullptr : &source_,
          .memory = files_ ? nullptr : &tier_,
          .slots = &pool_,
          .patience = options_.patience};
}

std::vector<experts::ExpertUse> HostDecode::uses() const {
  if (walk_) return walk_->uses();
  return std::vector<experts::ExpertUse>(static_cast<size_t>(config_.n_layers) *
                                         static_cast<size_t>(config_.n_experts));
}

/// How long it takes to submit a segment and hear of it, and what each layer of a long piece takes when its
/// kernels return at once: the flag is up, so nothing is computed.
Lookahead HostDecode::choose_lookahead() {
  const int all = config_.n_layers + 1;
  if (options_.decode == DecodeMode::sync) return {1, 1, {}};
  const int least = options_.decode == DecodeMode::routed ? 2 : 1;
  if (options_.lookahead > 0) {
    const int window = std::clamp(options_.lookahead, least, all);
    return {window, window, {}};
  }
  const int last = config_.n_layers;
  if (last < 3) return {least, all, {}};
  const auto shortest = [&](const auto& work) {
    Clock::duration best = Clock::duration::max();
    for (int i = 0; i < 4; ++i) {  // the first time captures the graphs
      const Clock::time_point start = Clock::now();
      work();
      stream_.synchronize(options_.patience);
      best = std::min(best, Clock::now() - start);
    }
    return microseconds(best);
  };
  stream_.fill(stop_, 1, sizeof(uint32_t));
  const double one = shortest([&] { submit(1, 2, false); });
  const double many = shortest([&] { submit(1, last, false); });
  stream_.fill(stop_, 0, sizeof(uint32_t));
  // Of whatever lies in host memory, to memory of its own: slots may have owners by now.
  SlotLoad load{{}, 0, mapped_expert_};
  if (!files_) load.expert.gate.data = load.expert.up.data = load.expert.down.data = tier_.host();
  const uint64_t bytes = loaded_bytes_;
  LoadExperts::Params p = load_params(0, {&load, 1});
  loaded_bytes_ = bytes;
  const Buffer slot = device_.allocate(p.slot_bytes, "a slot to measure with");
  p.slots = slot.as();
  const double loading = shortest([&] { launch_loads(stream_, p); });
  const double skip = std::max((many - one) / (last - 2), 0.01);
  return {least, all, {.decision = std::max(one - skip, skip / 100), .skip = skip, .load = loading}};
}

std::string HostDecode::description() const {
  if (options_.decode == DecodeMode::sync) return "the CPU decides after every layer";
  if (options_.lookahead > 0) return fmt::format("{} layers submitted ahead", options_.lookahead);
  if (!walk_) return "layers submitted ahead as the misses are";
  const Lookahead& l = walk_->lookahead();
  return fmt::format(
      "layers submitted ahead as the misses are: {} now, with {:.0f} % of layers missing one "
      "(a decision costs {:.1f} us, a layer skipped {:.1f}, a load {:.1f})",
      l.window(), 100 * (l.window() == 1 ? l.miss_rate() : l.miss_rate_without_prefetch()),
      l.costs().decision, l.costs().skip, l.costs().load);
}

void HostDecode::submit(int first, int last, bool predict) {
  submitted_at_ = Clock::now();
  polls_ = 0;
  while (first < last) {
    if (!graphs_on_) {
      encode_(first++, predict, logits_);
      continue;
    }
    const int end = piece_end(first, last);
    const bool logits = logits_ && end == config_.n_layers + 1;
    std::unique_ptr<Graph>& graph = graphs_[{first, end, predict, logits}];
    if (!graph) {
      graph = capture(stream_, [&] {
        for (int s = first; s < end; ++s) encode_(s, predict, logits);
      });
    }
    stream_.replay(*graph);
    first = end;
  }
}

const RouteRecord* HostDecode::if_current(const RouteRecord& record) const {
  const uint32_t number =
      std::atomic_ref(const_cast<uint32_t&>(record.number)).load(std::memory_order_acquire);
  return number == number_ ? &record : nullptr;
}

const RouteRecord* HostDecode::routed(int layer) {
  const RouteRecord& record = records_.host<RouteRecord>()[layer];
  if (const RouteRecord* current = if_current(record)) return current;
  if (++polls_ % 1024 != 0) return nullptr;
  // The work may be over without a word: then something is wrong, most likely said by idle() itself.
  if (stream_.idle()) {
    if (const RouteRecord* current = if_current(record)) return current;
    fail("GPU: layer {} ended without its router's answer", layer);
  }
  if (Clock::now() - submitted_at_ > options_.patience)
    fail("GPU: no answer from the router of layer {} within {} ms", layer, options_.patience.count());
  std::this_thread::yield();
  return nullptr;
}

const RouteRecord* HostDecode::predicted(int layer, int distance) {
  return if_current(records_.host<RouteRecord>()[distance * config_.n_layers + layer]);
}

const std::byte* HostDecode::on_device(const std::byte* host) const {
  return files_ ? files_->on_device(host) : tier_.on_device() + (host - tier_.host());
}

LoadExperts::Params HostDecode::load_params(int layer, std::span<const SlotLoad> loads) {
  RL_CHECK(loads.size() <= LoadExperts::kMostLoads, "{} loads", loads.size());
  LoadExperts::Params p = weights_.load_params(layer);
  p.n_loads = static_cast<int32_t>(loads.size());
  for (size_t i = 0; i < loads.size(); ++i) {
    const model::Model::Expert& e = loads[i].expert;
    p.loads[i] = {{on_device(e.gate.data), on_device(e.up.data), on_device(e.down.data)}, loads[i].slot};
    loaded_bytes_ += e.gate.bytes() + e.up.bytes() + e.down.bytes();
  }
  return p;
}

void HostDecode::launch_loads(Stream& stream, const LoadExperts::Params& params) {
  const uint32_t blocks = params.n_loads == 0 ? 1 : LoadExperts::kBlocks;
  const auto launch = [&] {
    stream.launch<LoadExperts>({.grid = {blocks}, .threads = kStepThreads}, params);
  };
  if (profile_ != nullptr && &stream == &stream_) {
    profile_->time(LoadExperts::kName, launch);
  } else {
    launch();
  }
}

void HostDecode::load(int layer, std::span<const SlotLoad> loads) {
  launch_loads(stream_, load_params(layer, loads));
}

void HostDecode::resume(int layer, std::span<const SlotLoad> loads, std::span<const int32_t> slots) {
  LoadExperts::Params p = load_params(layer, loads);
  p.stop = stop_;
  p.slots_of_token = slots_of_token_;
  p.n_used = static_cast<int32_t>(slots.size());
  std::ranges::copy(slots, p.resume);
  launch_loads(stream_, p);
}

void HostDecode::load_beside(int layer, std::span<const SlotLoad> loads) {
  launch_loads(*beside_, load_params(layer, loads));
  beside_->record(*beside_over_);
}

bool HostDecode::beside_done() {
  return beside_over_->done();
}

void HostDecode::wait_for_beside() {
  stream_.wait(*beside_over_);
}

}  // namespace redlite::gpu
