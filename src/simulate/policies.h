#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "experts/eviction.h"

namespace redlite::simulate {

/// LRU in two segments a class: loaded experts enter the first, a hit moves to the second, which holds at
/// most 4/5 of the class and gives its least recently used back to the first. The first segment is given away
/// first. O(1).
class SegmentedLru final : public experts::EvictionOrder {
 public:
  void add(int32_t slot, int slot_class) override;
  void use(int32_t slot, experts::ExpertKey key, bool hit) override;
  void forget(int32_t slot) override;
  int32_t first(int slot_class) const override;
  int32_t after(int32_t slot) const override;

 private:
  experts::SlotLists lists_;  ///< 2 * class: the first segment; + 1: the second
};

/// The slots of each class by a rank, the lowest first; of equal ranks the lower slot number. O(log slots).
class RankedOrder : public experts::EvictionOrder {
 public:
  void add(int32_t slot, int slot_class) override;
  void forget(int32_t slot) override;
  int32_t first(int slot_class) const override;
  int32_t after(int32_t slot) const override;

 protected:
  void set_rank(int32_t slot, double rank);

 private:
  using Ranked = std::set<std::pair<double, int32_t>>;
  struct Place {
    int slot_class;
    Ranked::iterator at;
  };
  std::vector<Ranked> classes_;
  std::vector<Place> places_;  ///< [slot]
};

/// The expert with the fewest uses goes first, each use counting half as much after `half_life` uses of any
/// expert. Uses are remembered for all experts, resident or not.
class DecayedFrequency final : public RankedOrder {
 public:
  DecayedFrequency(int n_layers, int n_experts, double half_life);
  void use(int32_t slot, experts::ExpertKey key, bool hit) override;

 private:
  int n_experts_;
  double half_life_;
  double now_ = 0;               ///< in half-lives
  std::vector<double> log_sum_;  ///< [layer][expert]: log2 of the sum of 2^(time of use)
};

/// The acquires of a run in their order, which the clairvoyant knows beforehand.
struct Future {
  int n_layers = 0;
  int n_experts = 0;
  std::vector<std::vector<uint32_t>> uses;  ///< [layer][expert]: when it is acquired, in rising order

  Future(int layers, int experts);
  void add(int layer, std::span<const int32_t> acquired, uint32_t time);
};

/// Belady's: the expert whose next use is furthest away goes first, which no order of equal slots can beat.
class Clairvoyant final : public RankedOrder {
 public:
  explicit Clairvoyant(Future future);
  /// The time of the acquire that follows.
  void set_time(uint32_t time) { now_ = time; }
  void use(int32_t slot, experts::ExpertKey key, bool hit) override;

 private:
  Future future_;
  std::vector<size_t> next_;  ///< [layer][expert]: the first use that may be after now
  uint32_t now_ = 0;
};

}  // namespace redlite::simulate
