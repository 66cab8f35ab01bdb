#include "simulate/policies.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace redlite::simulate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

void SegmentedLru::add(int32_t, int slot_class) {
  lists_.add(2 * slot_class);
}

void SegmentedLru::use(int32_t slot, experts::ExpertKey, bool hit) {
  const int first = lists_.list_of(slot) / 2 * 2;
  const int second = first + 1;
  if (!hit) return lists_.move_to_back(slot, first);
  lists_.move_to_back(slot, second);
  const int most = (lists_.size(first) + lists_.size(second)) * 4 / 5;
  if (lists_.size(second) > most) lists_.move_to_back(lists_.front(second), first);
}

void SegmentedLru::forget(int32_t slot) {
  lists_.move_to_front(slot, lists_.list_of(slot) / 2 * 2);
}

int32_t SegmentedLru::first(int slot_class) const {
  const int32_t slot = lists_.front(2 * slot_class);
  return slot >= 0 ? slot : lists_.front(2 * slot_class + 1);
}

int32_t SegmentedLru::after(int32_t slot) const {
  const int32_t next = lists_.next(slot);
  const int list = lists_.list_of(slot);
  return next >= 0 || list % 2 == 1 ? next : lists_.front(list + 1);
}

void RankedOrder::add(int32_t slot, int slot_class) {
  classes_.resize(std::max(classes_.size(), static_cast<size_t>(slot_class) + 1));
  Ranked& ranked = classes_[static_cast<size_t>(slot_class)];
  places_.push_back({slot_class, ranked.emplace(-kInfinity, slot).first});
}

void RankedOrder::forget(int32_t slot) {
  set_rank(slot, -kInfinity);
}

int32_t RankedOrder::first(int slot_class) const {
  if (static_cast<size_t>(slot_class) >= classes_.size()) return -1;
  const Ranked& ranked = classes_[static_cast<size_t>(slot_class)];
  return ranked.empty() ? -1 : ranked.begin()->second;
}

int32_t RankedOrder::after(int32_t slot) const {
  const Place& place = places_[static_cast<size_t>(slot)];
  const auto next = std::next(place.at);
  return next == classes_[static_cast<size_t>(place.slot_class)].end() ? -1 : next->second;
}

void RankedOrder::set_rank(int32_t slot, double rank) {
  Place& place = places_[static_cast<size_t>(slot)];
  Ranked& ranked = classes_[static_cast<size_t>(place.slot_class)];
  auto node = ranked.extract(place.at);
  node.value().first = rank;
  place.at = ranked.insert(std::move(node)).position;
}

DecayedFrequency::DecayedFrequency(int n_layers, int n_experts, double half_life)
    : n_experts_(n_experts),
      half_life_(half_life),
      log_sum_(static_cast<size_t>(n_layers) * static_cast<size_t>(n_experts), -kInfinity) {}

void DecayedFrequency::use(int32_t slot, experts::ExpertKey key, bool) {
  // All sums shrink alike, so none is touched: 2^now is added instead, in logarithms.
  double& sum = log_sum_[static_cast<size_t>(key.layer) * static_cast<size_t>(n_experts_) +
                         static_cast<size_t>(key.expert)];
  sum = now_ + std::log2(1 + std::exp2(sum - now_));
  now_ += 1 / half_life_;
  set_rank(slot, sum);
}

Future::Future(int layers, int experts)
    : n_layers(layers),
      n_experts(experts),
      uses(static_cast<size_t>(layers) * static_cast<size_t>(experts)) {}

void Future::add(int layer, std::span<const int32_t> acquired, uint32_t time) {
  for (const int32_t expert : acquired) uses[static_cast<size_t>(layer) * n_experts + expert].push_back(time);
}

Clairvoyant::Clairvoyant(Future future) : future_(std::move(future)), next_(future_.uses.size(), 0) {}

void Clairvoyant::use(int32_t slot, experts::ExpertKey key, bool) {
  const size_t index = static_cast<size_t>(key.layer) * static_cast<size_t>(future_.n_experts) +
                       static_cast<size_t>(key.expert);
  const std::vector<uint32_t>& uses = future_.uses[index];
  size_t& next = next_[index];
  while (next < uses.size() && uses[next] <= now_) ++next;
  set_rank(slot, next < uses.size() ? -static_cast<double>(uses[next]) : -1e300);
}

}  // namespace redlite::simulate
