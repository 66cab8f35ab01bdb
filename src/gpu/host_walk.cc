#include "gpu/host_walk.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace redlite::gpu {

using experts::ExpertKey;
using experts::Plan;
using experts::PlanEntry;

HostWalk::HostWalk(const Sizes& sizes, experts::ExpertPool& pool, experts::ExpertCache& source,
                   uint64_t* table, Lookahead lookahead, int predicted_layers)
    : sizes_(sizes),
      pool_(pool),
      source_(source),
      table_(table),
      lookahead_(lookahead),
      uses_(static_cast<size_t>(sizes.n_layers) * static_cast<size_t>(sizes.n_experts)),
      published_(static_cast<size_t>(pool.n_slots())),
      prefetched_(static_cast<size_t>(pool.n_slots())) {
  for (int distance = 1; distance <= predicted_layers; ++distance)
    plans_.push_back({.plan = experts::PrefetchPlan(sizes.n_used, distance), .likely = {}});
}

void HostWalk::token(HostGpu& gpu, int most) {
  submitted_ = 0;
  begun_layer_ = -1;
  for (Ahead& ahead : plans_) ahead.heard = -1;
  ++statistics_.tokens;
  for (int l = 0; l < sizes_.n_layers; ++l) {
    if (submitted_ <= l) {
      const int window = std::min(lookahead_.window(), most);
      const int end = std::min(l + window, sizes_.n_layers + 1);
      gpu.submit(submitted_, end, prefetching() && window == 1);
      submitted_ = end;
      ++statistics_.windows;
    }
    const RouteRecord* record = gpu.routed(l);
    while (record == nullptr) {
      pump(gpu, l);
      record = gpu.routed(l);
    }
    settle(gpu, l, *record);
  }
  if (submitted_ <= sizes_.n_layers) gpu.submit(submitted_, sizes_.n_layers + 1, false);
}

void HostWalk::finish() {
  release_held();
}

void HostWalk::settle(HostGpu& gpu, int layer, const RouteRecord& record) {
  release_held();  // the layer before is done
  const std::span<const int32_t> ids(record.ids, static_cast<size_t>(sizes_.n_used));
  for (Ahead& ahead : plans_) ahead.plan.acquired(layer, ids);
  if (copies_.empty()) ahead_.reset();  // what was not begun is this layer's own business now

  held_ = pool_.acquire(layer, ids);
  std::vector<int> missing;
  bool stopped = false, wait = false, ahead_of_time = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const PlanEntry& e = held_.entries[i];
    const uint64_t found = record.entries[i];
    ++(found != 0 ? uses_[index(e.key)].hits : uses_[index(e.key)].misses);
    if (found != 0) {
      RL_CHECK(
          e.hit && found == slot_entry(pool_.number_in_class(e.slot), static_cast<uint32_t>(e.generation)),
          "layer {} expert {}: the GPU found slot {} of generation {}, which has changed", layer, ids[i],
          slot_of_entry(found), found >> 32);
      ++statistics_.hits;
    } else if (e.hit) {
      ++statistics_.late;
    } else {
      ++statistics_.misses;
      take_back(e.slot);
      missing.push_back(static_cast<int>(i));
    }
    stopped |= found == 0;
    wait |= found == 0 && e.hit;
    if (e.hit && prefetched_[static_cast<size_t>(e.slot)]) {
      ++statistics_.prefetch_useful;
      ahead_of_time = true;
    }
    prefetched_[static_cast<size_t>(e.slot)] = false;
  }
  if (!stopped) {
    lookahead_.observe({.missed = false, .prefetched = ahead_of_time, .waited = 0});
    return;
  }
  ++statistics_.stops;
  statistics_.skipped_layers += static_cast<uint64_t>(submitted_ - (layer + 1));
  submitted_ = layer + 1;
  if (wait && !copies_.empty()) gpu.wait_for_beside();
  const auto start = std::chrono::steady_clock::now();
  try {
    bring(gpu, layer, held_, missing);
  } catch (...) {
    // Their bytes may be anything.
    for (const int i : missing) pool_.invalidate(held_.entries[static_cast<size_t>(i)]);
    throw;
  }
  const std::chrono::duration<double, std::micro> waited = std::chrono::steady_clock::now() - start;
  lookahead_.observe({.missed = true, .prefetched = ahead_of_time, .waited = waited.count()});
  for (const int i : missing) publish(held_.entries[static_cast<size_t>(i)]);
}

/// Loads the missing experts of a plan in the order in which host memory has them, and resumes the token.
void HostWalk::bring(HostGpu& gpu, int layer, const Plan& plan, std::span<const int> missing) {
  std::vector<SlotLoad> loads;
  if (!missing.empty()) {
    std::vector<int32_t> ids;
    for (const int i : missing) ids.push_back(plan.entries[static_cast<size_t>(i)].key.expert);
    Lease& lease = held_lease_.emplace(source_.acquire(layer, ids));
    // Behind these reads, those of the next layers.
    if (!hear_predictions(gpu, layer + 1)) read_ahead_from(layer + 1);
    const auto add = [&](int index) {
      const PlanEntry& e = plan.entries[static_cast<size_t>(missing[static_cast<size_t>(index)])];
      loads.push_back({e.key, pool_.number_in_class(e.slot), lease.expert(index)});
    };
    for (size_t taken = 0; taken < missing.size();) {
      if (!loads.empty()) gpu.load(layer, loads);
      loads.clear();
      std::optional<int> ready = lease.next();
      for (; ready; ready = lease.try_next()) {
        add(*ready);
        if (++taken == missing.size()) break;
      }
    }
  }
  std::vector<int32_t> slots;
  for (const PlanEntry& e : plan.entries) slots.push_back(pool_.number_in_class(e.slot));
  gpu.resume(layer, loads, slots);
}

void HostWalk::release_held() {
  pool_.release(held_);
  held_lease_.reset();
}

void HostWalk::pump(HostGpu& gpu, int layer) {
  source_.begin_reads();  // the disk goes on meanwhile
  if (!copies_.empty()) {
    if (!gpu.beside_done()) return;
    end_copies();
  }
  if (!prefetching() || layer == 0) return;
  hear_predictions(gpu, layer);
  if (plans_.front().heard != layer) return;
  if (begun_layer_ != layer) begin_prefetch(layer);
  if (ahead_) start_copies(gpu, layer);
}

bool HostWalk::hear_predictions(HostGpu& gpu, int layer) {
  bool news = false;
  for (int behind = 0; behind < static_cast<int>(plans_.size()) && layer + behind < sizes_.n_layers;
       ++behind) {
    Ahead& ahead = plans_[static_cast<size_t>(behind)];
    if (ahead.heard == layer) continue;
    const RouteRecord* predicted = gpu.predicted(layer + behind, behind + 1);
    if (predicted == nullptr) continue;
    ahead.heard = layer;
    news = true;
    std::vector<experts::PrefetchPlan::Candidate> candidates;
    for (int rank = 0; rank < sizes_.n_used; ++rank) {
      if (!pool_.resident({layer + behind, predicted->ids[rank]}))
        candidates.push_back({predicted->ids[rank], rank});
    }
    ahead.plan.predict(layer + behind, candidates);
    ahead.likely.clear();
    while (const std::optional<ExpertKey> key = ahead.plan.next()) ahead.likely.push_back(*key);
  }
  if (news) read_ahead_from(layer);
  return news;
}

void HostWalk::read_ahead_from(int layer) {
  std::vector<ExpertKey> keys;
  for (const Ahead& ahead : plans_) {
    std::ranges::copy_if(ahead.likely, std::back_inserter(keys),
                         [&](const ExpertKey& key) { return key.layer >= layer; });
  }
  source_.read_when_idle(keys);
}

void HostWalk::begin_prefetch(int layer) {
  begun_layer_ = layer;
  ahead_.reset();
  ahead_ids_.clear();
  // The layer in front holds what was loaded for it.
  if (!source_.two_leases_fit(layer)) return;
  // What is neither there nor on its way waits for its turn, behind what the router may be missing.
  for (const ExpertKey& key : plans_.front().likely)
    if (source_.resident(key.layer, key.expert)) ahead_ids_.push_back(key.expert);
  if (!ahead_ids_.empty()) ahead_.emplace(source_.acquire(layer, ahead_ids_));
}

void HostWalk::start_copies(HostGpu& gpu, int layer) {
  std::vector<SlotLoad> loads;
  // So many slots stay free that the router's selection finds room in any case.
  const size_t most = static_cast<size_t>(pool_.n_slots(layer) - sizes_.n_used);
  while (copies_.size() < most) {
    const int32_t victim = pool_.victim(layer);
    if (victim < 0) break;
    const ExpertKey old = pool_.key_of(victim);
    if (old.layer >= layer && old.layer < submitted_) {
      ++statistics_.prefetch_refused;
      if (loads.empty()) ahead_.reset();
      break;
    }
    std::optional<int> ready;
    try {
      ready = ahead_->next_present();  // another read might change who is the victim
    } catch (const Error&) {
      continue;  // whoever needs it will say so
    }
    if (!ready) break;
    const int32_t id = ahead_ids_[static_cast<size_t>(*ready)];
    Plan plan = pool_.acquire(layer, {&id, 1});
    const PlanEntry& e = plan.entries[0];
    RL_CHECK(!e.hit && e.slot == victim);
    take_back(e.slot);
    prefetched_[static_cast<size_t>(e.slot)] = true;
    ++statistics_.prefetched;
    ++uses_[index(e.key)].prefetches;
    loads.push_back({e.key, pool_.number_in_class(e.slot), ahead_->expert(*ready)});
    copies_.push_back(std::move(plan));
  }
  if (!loads.empty()) gpu.load_beside(layer, loads);
}

void HostWalk::end_copies() {
  for (Plan& plan : copies_) {
    publish(plan.entries[0]);
    pool_.release(plan);
  }
  copies_.clear();
}

void HostWalk::pause() {
  end_copies();
  ahead_.reset();
  source_.read_when_idle({});
}

void HostWalk::abandon() {
  for (Plan& plan : copies_) {
    pool_.invalidate(plan.entries[0]);
    pool_.release(plan);
  }
  copies_.clear();
  ahead_.reset();
  source_.read_when_idle({});
  release_held();
}

std::vector<experts::ExpertUse> HostWalk::uses() const {
  std::vector<experts::ExpertUse> out = uses_;
  for (int layer = 0; layer < sizes_.n_layers; ++layer)
    for (int expert = 0; expert < sizes_.n_experts; ++expert)
      out[index({layer, expert})].resident = pool_.resident({layer, expert});
  return out;
}

size_t HostWalk::index(ExpertKey key) const {
  return static_cast<size_t>(key.layer) * static_cast<size_t>(sizes_.n_experts) +
         static_cast<size_t>(key.expert);
}

uint64_t& HostWalk::entry(ExpertKey key) const {
  return table_[index(key)];
}

void HostWalk::publish(const PlanEntry& e) {
  published_[static_cast<size_t>(e.slot)] = e.key;
  std::atomic_ref(entry(e.key))
      .store(slot_entry(pool_.number_in_class(e.slot), static_cast<uint32_t>(e.generation)),
             std::memory_order_release);
}

void HostWalk::take_back(int32_t slot) {
  ExpertKey& key = published_[static_cast<size_t>(slot)];
  if (key.layer >= 0) std::atomic_ref(entry(key)).store(0, std::memory_order_release);
  key = {};
  prefetched_[static_cast<size_t>(slot)] = false;
}

}  // namespace redlite::gpu
