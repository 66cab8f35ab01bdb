#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "experts/eviction.h"

namespace redlite::experts {

/// The orders of eviction of two caches in a row: the near one (a GPU's slots) is filled from the far one
/// (host memory), which reads the file. Nothing goes back from the near one to the far one.
///
/// With a least recently used order each, all that the far cache holds is what the near one was filled with
/// last: what the near one gives away, the far one gave away long before. Here the two hold different
/// experts, and together those used last. Whoever is in both is in its place twice, so giving it away in one
/// of them loses nothing; who is in one alone is lost with its slot. So a slot is taken from
/// - who is in both, while these are more than the share kept for what is in use;
/// - otherwise from the one who was used longer ago, of those in the near cache alone and those in the far
///   one alone: the cache that has it gives it away, the other one somebody who is in both.
/// Of each kind the least recently used goes first. O(1).
class TwoTiers {
 public:
  /// Both caches have the same classes.
  TwoTiers(std::vector<int> class_of_layer, int n_experts, int n_experts_used);
  /// For the pools of the two caches, one each. They may outlive this object.
  std::unique_ptr<EvictionOrder> near_order() const;
  std::unique_ptr<EvictionOrder> far_order() const;

 private:
  struct Shared;
  class Order;
  std::shared_ptr<Shared> shared_;
};

}  // namespace redlite::experts
