#include "experts/cache.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "experts/arena.h"
#include "experts/layout.h"
#include "experts/pool.h"
#include "experts/prefetch.h"
#include "experts/reader.h"
#include "experts/store.h"

namespace redlite::experts {

using model::Model;

namespace {

/// The disk has enough to do while so many experts are being read. With fewer it waits between one's end and
/// the next one's beginning, with more a miss waits behind them.
constexpr int kBusy = 2;

}  // namespace

struct ExpertCache::Lease::State {
  ExpertCache::Impl* cache = nullptr;
  Plan plan;  ///< empty in a full cache
  std::vector<Model::Expert> experts;
  std::vector<int> ready;  ///< indices in the order to hand out; the first `handed_out` are gone
  size_t handed_out = 0;
  std::map<int, std::string> failed;  ///< by index, also in `ready`
  std::vector<int> retired;           ///< indices

  std::optional<int> take();
};

/// Everything that a cache with slots has and a full one has not.
struct ExpertCache::Bounded {
  struct Waiter {
    Lease::State* lease;
    int index;
  };
  struct Slot {
    Model::Expert expert;
    PlanEntry load;  ///< while loading: the read's own pin
    bool loading = false;
    bool urgent = false;          ///< loading, and a lease waits or waited for it
    bool prefetched = false;      ///< by prediction, and not selected since
    std::vector<Waiter> waiters;  ///< while loading
  };

  Bounded(const ExpertFiles& files, const SizeClasses& sizes, const CacheOptions& options,
          std::unique_ptr<Reader> reader, std::unique_ptr<EvictionOrder> order);

  void acquire(int layer, std::span<const int32_t> ids, Reads reads, Lease::State& lease);
  void prefetch(int layer, std::span<const int32_t> ids);
  void read_ahead(int layer, std::span<const int32_t> ids);
  void forget(Lease::State& lease);
  /// Lets arrivals reach the leases and starts prefetches when their time has come.
  void pump(bool wait);
  void poll(bool wait);

  Slot& start_load(const PlanEntry& entry);
  void start_prefetches();
  void fill_idle_disk();
  /// False when the class has no slot to spare.
  bool start_prefetch(ExpertKey key);
  /// What a prediction marks as used is evicted neither by its layer's misses nor by the other loads.
  void mark_used(int layer, int32_t id);
  void arrived(const Arrival& arrival);

  ExpertUse& use(ExpertKey key) {
    return uses[static_cast<size_t>(key.layer) * static_cast<size_t>(files.n_experts) +
                static_cast<size_t>(key.expert)];
  }

  ExpertFiles files;
  ExpertPool pool;
  Arena arena;
  std::vector<Slot> slots;
  PrefetchPlan plan;
  std::deque<ExpertKey> when_idle;        ///< what read_when_idle() named, and was not begun
  IoChoice io;                            ///< rates only if it was left to us
  std::vector<int> prefetches_in_flight;  ///< [class], those no lease waits for
  int urgent = 0;                         ///< loads that a lease waits or waited for
  std::vector<Arrival> arrivals;
  CacheStats stats;
  std::vector<ExpertUse> uses;
  ExpertStore store;  ///< last: it must go before the memory it reads into
};

struct ExpertCache::Impl {
  ExpertFiles files;
  bool prefetch = false;
  int live_leases = 0;
  CacheStats full_stats;
  std::vector<ExpertUse> full_uses;
  std::unique_ptr<Bounded> bounded;  ///< nullptr: full
};

ExpertCache::Bounded::Bounded(const ExpertFiles& expert_files, const SizeClasses& sizes,
                              const CacheOptions& options, std::unique_ptr<Reader> reader,
                              std::unique_ptr<EvictionOrder> order)
    : files(expert_files),
      pool(sizes.class_of_layer, files.n_experts, divide(sizes, files.n_experts_used, options.size.bytes),
           std::move(order)),
      arena(pool.arena_bytes()),
      slots(static_cast<size_t>(pool.n_slots())),
      plan(files.n_experts_used),
      io(options.io == IoMode::Auto ? choose_io_mode(files) : IoChoice{.mode = options.io}),
      prefetches_in_flight(sizes.classes.size(), 0),
      uses(files.layers.size() * static_cast<size_t>(files.n_experts)),
      store(files, io.mode, reader ? std::move(reader) : make_reader()) {}

void ExpertCache::Bounded::acquire(int layer, std::span<const int32_t> ids, Reads reads,
                                   Lease::State& lease) {
  plan.acquired(layer, ids);
  pump(false);
  while (pool.needed(layer, ids) > pool.available(layer)) {
    RL_CHECK(store.pending() > 0,
             "the live leases of layer {}'s size class and {} experts more exceed its {} slots", layer,
             ids.size(), pool.n_slots(layer));
    pump(true);
  }
  lease.plan = pool.acquire(layer, ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    const PlanEntry& entry = lease.plan.entries[i];
    Slot& slot = slots[static_cast<size_t>(entry.slot)];
    const bool late = entry.hit && slot.loading && slot.prefetched;
    ++(entry.hit && !late ? use(entry.key).hits : use(entry.key).misses);
    if (!entry.hit) {
      ++stats.misses;
      pool.pin(entry);
      start_load(entry);
      slot.urgent = true;
      ++urgent;
    } else if (late) {
      ++stats.prefetch_late;
      --prefetches_in_flight[static_cast<size_t>(pool.class_of(layer))];
      slot.urgent = true;
      ++urgent;
    } else {
      ++stats.hits;
      if (slot.prefetched) ++stats.prefetch_useful;
    }
    slot.prefetched = false;
    lease.experts[i] = slot.expert;
    if (slot.loading) {
      slot.waiters.push_back({&lease, static_cast<int>(i)});
    } else {
      lease.ready.push_back(static_cast<int>(i));
    }
  }
  if (reads == Reads::Now) pump(false);
}

void ExpertCache::Bounded::prefetch(int layer, std::span<const int32_t> ids) {
  std::vector<PrefetchPlan::Candidate> missing;
  const size_t n = std::min(ids.size(), static_cast<size_t>(files.n_experts_used));
  for (size_t rank = 0; rank < n; ++rank) {
    const std::span<const int32_t> id = ids.subspan(rank, 1);
    const int32_t slot = pool.slot_of({layer, id[0]});
    if (slot < 0) {
      missing.push_back({id[0], static_cast<int>(rank)});
    } else {
      mark_used(layer, id[0]);
    }
  }
  plan.predict(layer, missing);
  pump(false);
}

void ExpertCache::Bounded::read_ahead(int layer, std::span<const int32_t> ids) {
  plan.predict(layer, {});
  for (const int32_t id : ids) {
    if (pool.resident({layer, id})) mark_used(layer, id);
  }
  int spare = pool.available(layer) - pool.kept_slots(layer, files.n_experts_used);
  for (const int32_t id : ids) {
    if (pool.resident({layer, id})) continue;
    if (spare-- <= 0 || !start_prefetch({layer, id})) break;
  }
  poll(false);
}

void ExpertCache::Bounded::mark_used(int layer, int32_t id) {
  Plan use = pool.acquire(layer, {&id, 1});
  pool.release(use);
}

void ExpertCache::Bounded::forget(Lease::State& lease) {
  for (const PlanEntry& entry : lease.plan.entries) {
    std::erase_if(slots[static_cast<size_t>(entry.slot)].waiters,
                  [&](const Waiter& w) { return w.lease == &lease; });
  }
  for (const int index : lease.retired) pool.retire(lease.plan.entries[static_cast<size_t>(index)]);
  pool.release(lease.plan);
}

void ExpertCache::Bounded::pump(bool wait) {
  if (store.pending() > 0) {
    const auto start = std::chrono::steady_clock::now();
    poll(wait);
    if (wait) {
      stats.stall_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  }
  if (urgent == 0 && !plan.empty()) start_prefetches();
  fill_idle_disk();
}

void ExpertCache::Bounded::fill_idle_disk() {
  bool started = false;
  while (!when_idle.empty() && store.pending() < kBusy) {
    const ExpertKey key = when_idle.front();
    when_idle.pop_front();
    if (!pool.resident(key)) started |= start_prefetch(key);
  }
  if (started) poll(false);
}

void ExpertCache::Bounded::poll(bool wait) {
  arrivals.clear();
  store.poll(wait, arrivals);
  for (const Arrival& arrival : arrivals) arrived(arrival);
}

ExpertCache::Bounded::Slot& ExpertCache::Bounded::start_load(const PlanEntry& entry) {
  Slot& slot = slots[static_cast<size_t>(entry.slot)];
  RL_CHECK(!slot.loading && slot.waiters.empty());
  const model::ExpertLayer& layer = files.layers[static_cast<size_t>(entry.key.layer)];
  const Placement placement = place(layer, entry.key.expert);
  std::byte* memory = arena.data() + pool.slot_offset(entry.slot);
  slot.expert.gate = {memory + placement.gate, layer.gate.type, layer.gate.rows, layer.gate.cols};
  slot.expert.up = {memory + placement.up, layer.up.type, layer.up.rows, layer.up.cols};
  slot.expert.down = {memory + placement.down, layer.down.type, layer.down.rows, layer.down.cols};
  slot.load = entry;
  slot.loading = true;
  slot.urgent = false;
  slot.prefetched = false;
  store.read(entry.key, placement, memory, entry.slot);
  return slot;
}

void ExpertCache::Bounded::start_prefetches() {
  bool started = false;
  while (store.has_room()) {
    const std::optional<ExpertKey> key = plan.next();
    if (!key) break;
    if (pool.resident(*key)) continue;
    started |= start_prefetch(*key);
  }
  if (started) poll(false);
}

bool ExpertCache::Bounded::start_prefetch(ExpertKey key) {
  // So many slots stay free of prefetches that the next acquire() need not wait for them.
  int& in_flight = prefetches_in_flight[static_cast<size_t>(pool.class_of(key.layer))];
  const int most = pool.n_slots(key.layer) - files.n_experts_used;
  if (in_flight >= most || pool.available(key.layer) == 0) return false;
  const Plan load = pool.acquire(key.layer, {&key.expert, 1});
  start_load(load.entries[0]).prefetched = true;  // the plan's pin is the read's
  ++in_flight;
  ++stats.prefetched;
  ++use(key).prefetches;
  return true;
}

void ExpertCache::Bounded::arrived(const Arrival& arrival) {
  Slot& slot = slots[static_cast<size_t>(arrival.slot)];
  slot.loading = false;
  if (slot.urgent) {
    --urgent;
  } else {
    --prefetches_in_flight[static_cast<size_t>(pool.class_of(slot.load.key.layer))];
  }
  if (!arrival.error.empty()) {
    slot.prefetched = false;
    pool.invalidate(slot.load);
  }
  for (const Waiter& waiter : slot.waiters) {
    if (!arrival.error.empty()) waiter.lease->failed.emplace(waiter.index, arrival.error);
    waiter.lease->ready.push_back(waiter.index);
  }
  slot.waiters.clear();
  pool.unpin(slot.load);
}

std::optional<int> ExpertCache::Lease::State::take() {
  if (handed_out == ready.size()) return std::nullopt;
  const int index = ready[handed_out++];
  const auto failure = failed.find(index);
  if (failure != failed.end()) throw Error(failure->second);
  return index;
}

ExpertCache::Lease::Lease(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExpertCache::Lease::Lease(Lease&&) noexcept = default;

ExpertCache::Lease& ExpertCache::Lease::operator=(Lease&& other) noexcept {
  std::swap(state_, other.state_);
  Lease old(std::move(other.state_));  // gives back what this one held
  return *this;
}

ExpertCache::Lease::~Lease() {
  if (!state_) return;
  --state_->cache->live_leases;
  if (state_->cache->bounded) state_->cache->bounded->forget(*state_);
}

std::optional<int> ExpertCache::Lease::next() {
  Bounded* bounded = state_->cache->bounded.get();
  if (bounded != nullptr) {
    bounded->pump(false);
    while (state_->handed_out == state_->ready.size() && state_->ready.size() < state_->experts.size()) {
      bounded->pump(true);
    }
  }
  return state_->take();
}

std::optional<int> ExpertCache::Lease::try_next() {
  Bounded* bounded = state_->cache->bounded.get();
  if (bounded != nullptr) bounded->pump(false);
  return state_->take();
}

std::optional<int> ExpertCache::Lease::next_present() {
  return state_->take();
}

const Model::Expert& ExpertCache::Lease::expert(int index) const {
  return state_->experts[static_cast<size_t>(index)];
}

void ExpertCache::Lease::retire(int index) {
  if (state_->cache->bounded) state_->retired.push_back(index);
}

ExpertCache::ExpertCache(const Model& model, CacheOptions options)
    : ExpertCache(expert_files(model), options, nullptr) {}

ExpertCache::ExpertCache(const ExpertFiles& files, CacheOptions options, std::unique_ptr<Reader> reader,
                         std::unique_ptr<EvictionOrder> order)
    : impl_(std::make_unique<Impl>()) {
  impl_->files = files;
  if (options.size.kind == CacheSize::Kind::Full) {
    impl_->full_uses.assign(files.layers.size() * static_cast<size_t>(files.n_experts), {.resident = true});
    return;
  }
  impl_->prefetch = options.prefetch;
  impl_->bounded =
      std::make_unique<Bounded>(files, size_classes(files), options, std::move(reader), std::move(order));
}

ExpertCache::~ExpertCache() {
  RL_CHECK(impl_->live_leases == 0, "{} leases outlive their cache", impl_->live_leases);
}

ExpertCache::Lease ExpertCache::acquire(int layer, std::span<const int32_t> experts, Reads reads) {
  RL_CHECK(experts.size() <= static_cast<size_t>(max_lease(layer)), "{} experts in one lease of at most {}",
           experts.size(), max_lease(layer));
  auto state = std::make_unique<Lease::State>();
  state->cache = impl_.get();
  state->experts.resize(experts.size());
  state->ready.reserve(experts.size());
  if (impl_->bounded) {
    impl_->bounded->acquire(layer, experts, reads, *state);
  } else {
    for (size_t i = 0; i < experts.size(); ++i) {
      state->experts[i] = impl_->files.mapped(layer, experts[i]);
      state->ready.push_back(static_cast<int>(i));
      const size_t of_layer = static_cast<size_t>(layer) * static_cast<size_t>(impl_->files.n_experts);
      ++impl_->full_uses[of_layer + static_cast<size_t>(experts[i])].hits;
    }
    impl_->full_stats.hits += experts.size();
  }
  ++impl_->live_leases;
  return Lease(std::move(state));
}

void ExpertCache::begin_reads() {
  if (impl_->bounded) impl_->bounded->pump(false);
}

void ExpertCache::prefetch(int layer, std::span<const int32_t> experts) {
  if (impl_->prefetch) impl_->bounded->prefetch(layer, experts);
}

void ExpertCache::read_ahead(int layer, std::span<const int32_t> experts) {
  if (prefetching()) impl_->bounded->read_ahead(layer, experts);
}

void ExpertCache::read_when_idle(std::span<const ExpertKey> keys) {
  if (!prefetching() || !impl_->bounded) return;
  impl_->bounded->when_idle.assign(keys.begin(), keys.end());
  impl_->bounded->pump(false);
}

int ExpertCache::worth_keeping(int layer, int n) const {
  return impl_->bounded ? impl_->bounded->pool.worth_keeping(layer, impl_->files.n_experts_used, n) : n;
}

bool ExpertCache::resident(int layer, int32_t expert) const {
  return !impl_->bounded || impl_->bounded->pool.resident({layer, expert});
}

std::optional<Model::Expert> ExpertCache::find(int layer, int32_t expert) const {
  if (!impl_->bounded) return impl_->files.mapped(layer, expert);
  const int32_t number = impl_->bounded->pool.slot_of({layer, expert});
  if (number < 0) return std::nullopt;
  const Bounded::Slot& slot = impl_->bounded->slots[static_cast<size_t>(number)];
  return slot.loading ? std::nullopt : std::optional(slot.expert);
}

int ExpertCache::max_lease(int layer) const {
  if (!impl_->bounded) return impl_->files.n_experts;
  return impl_->bounded->pool.largest_plan(layer, impl_->files.n_experts_used);
}

bool ExpertCache::two_leases_fit(int layer) const {
  return !impl_->bounded || impl_->bounded->pool.two_plans_fit(layer, impl_->files.n_experts_used);
}

bool ExpertCache::prefetching() const {
  return impl_->prefetch;
}

CacheStats ExpertCache::stats() const {
  if (!impl_->bounded) return impl_->full_stats;
  CacheStats stats = impl_->bounded->stats;
  stats.prefetch_wasted = stats.prefetched - stats.prefetch_useful - stats.prefetch_late;
  stats.bytes_read = impl_->bounded->store.bytes_read();
  return stats;
}

std::vector<ExpertUse> ExpertCache::uses() const {
  if (!impl_->bounded) return impl_->full_uses;
  std::vector<ExpertUse> uses = impl_->bounded->uses;
  const int n_experts = impl_->files.n_experts;
  for (size_t i = 0; i < uses.size(); ++i) {
    const int at = static_cast<int>(i);
    uses[i].resident = impl_->bounded->pool.resident({at / n_experts, at % n_experts});
  }
  return uses;
}

uint64_t ExpertCache::memory_bytes() const {
  return impl_->bounded ? impl_->bounded->arena.size() : 0;
}

std::span<std::byte> ExpertCache::memory() {
  if (!impl_->bounded) return {};
  return {impl_->bounded->arena.data(), impl_->bounded->arena.size()};
}

std::string ExpertCache::io() const {
  if (!impl_->bounded) return "mapped";
  const ExpertStore& store = impl_->bounded->store;
  const IoChoice& io = impl_->bounded->io;
  std::string text = fmt::format("{} reads by {}", io_mode_name(store.mode()), store.reader_name());
  if (io.direct > 0) {
    text +=
        fmt::format(" (measured: direct {:.1f} GB/s, buffered {:.1f})", io.direct / 1e9, io.buffered / 1e9);
  } else if (io.buffered > 0) {
    text += " (the file system has no direct ones)";
  }
  return text;
}

uint64_t ExpertCache::minimum_bytes(const Model& model) {
  const ExpertFiles files = expert_files(model);
  return size_classes(files).minimum_bytes(files.n_experts_used);
}

uint64_t ExpertCache::full_bytes(const Model& model) {
  return size_classes(expert_files(model)).full_bytes();
}

CacheSize ExpertCache::auto_size(const Model& model, uint64_t other_bytes) {
  // For what else the process and its neighbours take before the cache has filled.
  constexpr uint64_t kReserve = uint64_t{512} << 20;
  const uint64_t available = available_memory();
  const uint64_t left = available - std::min(available, other_bytes + kReserve);
  if (left >= model.expert_bytes()) return {CacheSize::Kind::Full, 0};
  const uint64_t minimum = minimum_bytes(model);
  if (left < minimum) {
    fail(
        "{}: {} MiB of memory are available, but the model and its context need {} MiB and one token's "
        "experts "
        "{} MiB, with {} MiB in reserve; free some memory, shorten the context, or name a size with "
        "--cache-mib",
        model.path(), available >> 20, other_bytes >> 20, minimum >> 20, kReserve >> 20);
  }
  return {CacheSize::Kind::Bounded, std::min(left, full_bytes(model))};
}

}  // namespace redlite::experts
