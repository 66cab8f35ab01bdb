#include "simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "experts/pool.h"
#include "experts/prefetch.h"
#include "simulate/policies.h"

namespace redlite::simulate {
namespace {

using experts::Plan;
using experts::PlanEntry;
using trace::Trace;

/// The distinct experts of some tokens, ascending: the order in which the engine asks for them.
std::vector<int32_t> distinct_experts(const Trace& trace, size_t first, size_t n, int layer) {
  std::vector<int32_t> ids;
  for (size_t t = first; t < first + n; ++t) {
    const std::span<const uint16_t> selected = trace.experts(t, layer);
    ids.insert(ids.end(), selected.begin(), selected.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// An order of eviction, and the clairvoyant's clock if it is that.
struct Order {
  std::unique_ptr<experts::EvictionOrder> order;
  Clairvoyant* clairvoyant = nullptr;
};

Future future_of(const Trace& trace) {
  Future future(trace.n_layers, trace.n_experts);
  uint32_t step = 0;
  size_t token = 0;
  for (const uint32_t n : trace.chunks) {
    for (int l = 0; l < trace.n_layers; ++l) future.add(l, distinct_experts(trace, token, n, l), step++);
    token += n;
  }
  return future;
}

Order make_order(const Trace& trace, const Setup& setup) {
  switch (setup.policy) {
    case Policy::Lru:
      return {std::make_unique<experts::LeastRecentlyUsed>()};
    case Policy::SegmentedLru:
      return {std::make_unique<SegmentedLru>()};
    case Policy::Frequency: {
      const double uses_of_a_token = static_cast<double>(trace.n_layers) * trace.n_used;
      return {std::make_unique<DecayedFrequency>(trace.n_layers, trace.n_experts,
                                                 setup.half_life * uses_of_a_token)};
    }
    case Policy::Clairvoyant: {
      auto order = std::make_unique<Clairvoyant>(future_of(trace));
      Clairvoyant* clairvoyant = order.get();
      return {std::move(order), clairvoyant};
    }
  }
  RL_CHECK(false, "policy {}", static_cast<int>(setup.policy));
  return {};
}

class Replay {
 public:
  Replay(const Trace& trace, const Setup& setup, const Speeds& speeds)
      : Replay(trace, setup, speeds, size_classes(trace, setup.slots), make_order(trace, setup)) {}

  Result run();

 private:
  /// Experts of one layer, pinned.
  struct Wave {
    Plan plan;
    std::vector<double> arrivals;  ///< of those that are not there yet
    std::vector<bool> retired;     ///< which are not worth keeping; empty: none
  };
  /// A load ahead that has not arrived.
  struct Load {
    PlanEntry entry;
    double arrives = 0;
    bool awaited = false;  ///< selected meanwhile
  };

  Replay(const Trace& trace, const Setup& setup, const Speeds& speeds, const experts::SizeClasses& sizes,
         Order order)
      : trace_(trace),
        setup_(setup),
        speeds_(speeds),
        clairvoyant_(order.clairvoyant),
        pool_(sizes.class_of_layer, trace.n_experts, experts::divide(sizes, trace.n_used, setup.cache_bytes),
              std::move(order.order)),
        plan_(trace.n_used),
        ahead_(static_cast<size_t>(pool_.n_slots()), false),
        loading_of_class_(sizes.classes.size(), 0) {}

  void layer(size_t first_token, size_t n, int layer);
  std::vector<int32_t> in_order_of_waves(std::vector<int32_t> ids, int layer) const;
  std::vector<bool> retired_of(const std::vector<int32_t>& ids, size_t first_token, size_t n,
                               int layer) const;
  Wave acquire(int layer, std::span<const int32_t> ids);
  void release(Wave& wave);
  void compute(int layer, Wave& wave);
  std::vector<int32_t> predict(size_t token, int layer) const;
  void load_ahead(int layer, std::span<const int32_t> ids);
  void take_arrivals();

  /// When a read of one of the layer's experts, queued now, is done.
  double queue_read(int layer) {
    disk_free_ = std::max(disk_free_, now_) + expert_bytes(layer) / speeds_.disk;
    stats_.bytes_read += trace_.layers[static_cast<size_t>(layer)].triplet_bytes;
    return disk_free_;
  }
  double expert_bytes(int layer) const {
    return static_cast<double>(trace_.layers[static_cast<size_t>(layer)].triplet_bytes);
  }

  const Trace& trace_;
  const Setup& setup_;
  const Speeds& speeds_;
  Clairvoyant* clairvoyant_;
  experts::ExpertPool pool_;
  experts::PrefetchPlan plan_;
  std::vector<bool> ahead_;            ///< [slot]: loaded ahead and not selected since
  std::deque<Load> in_flight_;         ///< in order of arrival
  std::vector<int> loading_of_class_;  ///< loads ahead that no layer waits for
  uint32_t step_ = 0;                  ///< a chunk's layer
  double now_ = 0;
  double disk_free_ = 0;  ///< when the disk has worked off its queue
  experts::CacheStats stats_;
};

Result Replay::run() {
  const auto decoded = static_cast<size_t>(std::count(trace_.chunks.begin(), trace_.chunks.end(), 1u));
  const size_t warm_up = decoded / 4;
  Result result;
  size_t token = 0;
  size_t decoded_so_far = 0;
  for (const uint32_t n : trace_.chunks) {
    const experts::CacheStats before = stats_;
    const double start = now_;
    for (int l = 0; l < trace_.n_layers; ++l) layer(token, n, l);
    token += n;
    const bool counts = decoded == 0 || (n == 1 && decoded_so_far >= warm_up);
    if (n == 1) ++decoded_so_far;
    if (!counts) continue;
    const auto grown = [&](auto experts::CacheStats::*counter) {
      return static_cast<double>(stats_.*counter - before.*counter);
    };
    result.tokens += n;
    result.misses += grown(&experts::CacheStats::misses) + grown(&experts::CacheStats::prefetch_late);
    result.loads += grown(&experts::CacheStats::misses) + grown(&experts::CacheStats::prefetched);
    result.bytes_read += grown(&experts::CacheStats::bytes_read);
    result.seconds += now_ - start;
  }
  for (double* sum : {&result.misses, &result.loads, &result.bytes_read, &result.seconds})
    *sum /= static_cast<double>(std::max<size_t>(result.tokens, 1));
  result.stats = stats_;
  result.stats.prefetch_wasted = stats_.prefetched - stats_.prefetch_useful - stats_.prefetch_late;
  return result;
}

void Replay::layer(size_t first_token, size_t n, int layer) {
  if (clairvoyant_ != nullptr) clairvoyant_->set_time(step_);
  ++step_;
  now_ += static_cast<double>(trace_.dense_bytes) / trace_.n_layers / speeds_.memory;
  take_arrivals();
  const std::vector<int32_t> ids = in_order_of_waves(distinct_experts(trace_, first_token, n, layer), layer);
  const std::vector<bool> retired = retired_of(ids, first_token, n, layer);
  const auto most = static_cast<size_t>(pool_.largest_plan(layer, trace_.n_used));
  const size_t waves = (ids.size() + most - 1) / most;
  const size_t per_wave = (ids.size() + waves - 1) / waves;
  const auto acquire_wave = [&](size_t first) {
    const size_t count = std::min(per_wave, ids.size() - first);
    Wave wave = acquire(layer, std::span(ids).subspan(first, count));
    if (!retired.empty()) {
      const auto begin = retired.begin() + static_cast<std::ptrdiff_t>(first);
      wave.retired.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return wave;
  };
  Wave current = acquire_wave(0);
  if (n == 1 && layer + 1 < trace_.n_layers && setup_.predictor != Predictor::None)
    load_ahead(layer + 1, predict(first_token, layer + 1));
  for (size_t next = per_wave;; next += per_wave) {
    std::optional<Wave> following;
    if (next < ids.size() && pool_.two_plans_fit(layer, trace_.n_used)) following = acquire_wave(next);
    compute(layer, current);
    release(current);
    if (next >= ids.size()) break;
    current = following ? std::move(*following) : acquire_wave(next);
  }
}

// As CpuRunner's group_by_expert(): in several waves, what is in memory comes first.
std::vector<int32_t> Replay::in_order_of_waves(std::vector<int32_t> ids, int layer) const {
  if (ids.size() > static_cast<size_t>(pool_.largest_plan(layer, trace_.n_used)))
    std::stable_partition(ids.begin(), ids.end(), [&](int32_t e) { return pool_.resident({layer, e}); });
  return ids;
}

// As CpuRunner's retire_experts(): of a chunk's experts those stay that its last tokens used most.
std::vector<bool> Replay::retired_of(const std::vector<int32_t>& ids, size_t first_token, size_t n,
                                     int layer) const {
  constexpr double kHalfLife = 32;  // tokens
  const auto keep =
      static_cast<size_t>(pool_.worth_keeping(layer, trace_.n_used, static_cast<int>(ids.size())));
  if (n == 1 || keep >= ids.size()) return {};
  std::vector<double> score(static_cast<size_t>(trace_.n_experts));
  for (size_t t = 0; t < n; ++t) {
    const double weight = std::exp2((static_cast<double>(t) - static_cast<double>(n)) / kHalfLife);
    for (const uint16_t e : trace_.experts(first_token + t, layer)) score[e] += weight;
  }
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto score_of = [&](size_t i) { return score[static_cast<size_t>(ids[i])]; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return score_of(a) != score_of(b) ? score_of(a) > score_of(b) : ids[a] < ids[b];
  });
  std::vector<bool> retired(ids.size(), false);
  for (size_t i = keep; i < order.size(); ++i) retired[order[i]] = true;
  return retired;
}

void Replay::release(Wave& wave) {
  for (size_t i = 0; i < wave.retired.size(); ++i)
    if (wave.retired[i]) pool_.retire(wave.plan.entries[i]);
  pool_.release(wave.plan);
}

Replay::Wave Replay::acquire(int layer, std::span<const int32_t> ids) {
  plan_.acquired(layer, ids);
  while (pool_.needed(layer, ids) > pool_.available(layer)) {
    RL_CHECK(!in_flight_.empty(), "{} experts do not fit", ids.size());
    now_ = std::max(now_, in_flight_.front().arrives);
    take_arrivals();
  }
  Wave wave;
  wave.plan = pool_.acquire(layer, ids);
  for (const PlanEntry& entry : wave.plan.entries) {
    const auto slot = static_cast<size_t>(entry.slot);
    const auto load = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [&](const Load& l) { return l.entry.slot == entry.slot; });
    if (!entry.hit) {
      ++stats_.misses;
      wave.arrivals.push_back(queue_read(layer));
    } else if (load != in_flight_.end() && ahead_[slot]) {
      ++stats_.prefetch_late;
      load->awaited = true;
      --loading_of_class_[static_cast<size_t>(pool_.class_of(layer))];
      wave.arrivals.push_back(load->arrives);
    } else {
      ++stats_.hits;
      if (ahead_[slot]) ++stats_.prefetch_useful;
    }
    ahead_[slot] = false;
  }
  std::sort(wave.arrivals.begin(), wave.arrivals.end());
  return wave;
}

void Replay::compute(int layer, Wave& wave) {
  const double each = expert_bytes(layer) / speeds_.memory;
  now_ += each * static_cast<double>(wave.plan.entries.size() - wave.arrivals.size());
  for (const double arrival : wave.arrivals) {
    if (arrival > now_) stats_.stall_seconds += arrival - now_;
    now_ = std::max(now_, arrival) + each;
  }
  take_arrivals();
}

std::vector<int32_t> Replay::predict(size_t token, int layer) const {
  std::span<const uint16_t> ids;
  if (setup_.predictor == Predictor::Router) ids = trace_.prediction(token, layer);
  if (setup_.predictor == Predictor::PreviousToken && token > 0) ids = trace_.experts(token - 1, layer);
  if (setup_.predictor == Predictor::Perfect) ids = trace_.experts(token, layer);
  ids = ids.first(std::min(ids.size(), static_cast<size_t>(trace_.n_used)));
  return {ids.begin(), ids.end()};
}

// As ExpertCache::prefetch() and what it starts. The loads queue behind those that the layer waits for, so
// it is all the same that they are queued at once and not when those have arrived.
void Replay::load_ahead(int layer, std::span<const int32_t> ids) {
  std::vector<experts::PrefetchPlan::Candidate> missing;
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    const std::span<const int32_t> id = ids.subspan(rank, 1);
    if (pool_.resident({layer, id[0]})) {
      Plan use = pool_.acquire(layer, id);
      pool_.release(use);
    } else {
      missing.push_back({id[0], static_cast<int>(rank)});
    }
  }
  plan_.predict(layer, missing);
  int& loading = loading_of_class_[static_cast<size_t>(pool_.class_of(layer))];
  const int most = pool_.n_slots(layer) - trace_.n_used;
  while (const std::optional<experts::ExpertKey> key = plan_.next()) {
    if (loading >= most || pool_.available(layer) == 0) continue;
    const Plan load = pool_.acquire(layer, {&key->expert, 1});
    in_flight_.push_back({load.entries[0], queue_read(layer)});  // the plan's pin is the read's
    ahead_[static_cast<size_t>(load.entries[0].slot)] = true;
    ++loading;
    ++stats_.prefetched;
  }
}

void Replay::take_arrivals() {
  while (!in_flight_.empty() && in_flight_.front().arrives <= now_) {
    const Load& load = in_flight_.front();
    if (!load.awaited) --loading_of_class_[static_cast<size_t>(pool_.class_of(load.entry.key.layer))];
    pool_.unpin(load.entry);
    in_flight_.pop_front();
  }
}

}  // namespace

std::string_view name_of(Policy policy) {
  switch (policy) {
    case Policy::Lru:
      return "lru";
    case Policy::SegmentedLru:
      return "segmented";
    case Policy::Frequency:
      return "frequency";
    case Policy::Clairvoyant:
      return "clairvoyant";
  }
  return "?";
}

std::string_view name_of(Slots slots) {
  return slots == Slots::BySize ? "by-size" : "uniform";
}

std::string_view name_of(Predictor predictor) {
  switch (predictor) {
    case Predictor::None:
      return "none";
    case Predictor::Router:
      return "router";
    case Predictor::PreviousToken:
      return "previous";
    case Predictor::Perfect:
      return "perfect";
  }
  return "?";
}

experts::SizeClasses size_classes(const Trace& trace, Slots slots) {
  experts::SizeClasses sizes;
  std::map<uint64_t, int> class_of_size;
  for (const trace::LayerSizes& layer : trace.layers) {
    const uint64_t size = slots == Slots::Uniform ? 0 : layer.triplet_bytes;
    const auto [it, is_new] = class_of_size.try_emplace(size, static_cast<int>(sizes.classes.size()));
    if (is_new) {
      sizes.classes.emplace_back();
      sizes.triplet_bytes.push_back(0);
    }
    const auto c = static_cast<size_t>(it->second);
    sizes.class_of_layer.push_back(it->second);
    sizes.classes[c].n_slots += trace.n_experts;
    sizes.classes[c].slot_bytes = std::max<size_t>(sizes.classes[c].slot_bytes, layer.slot_bytes);
    sizes.triplet_bytes[c] = std::max(sizes.triplet_bytes[c], layer.triplet_bytes);
  }
  return sizes;
}

Result simulate(const Trace& trace, const Setup& setup, const Speeds& speeds) {
  return Replay(trace, setup, speeds).run();
}

}  // namespace redlite::simulate
