#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/eviction.h"

namespace redlite::experts {

/// Slots of one size. A layer belongs to the class of its triplet size.
struct SlotClass {
  size_t slot_bytes = 0;
  int n_slots = 0;
};

/// One expert of a plan: where it lives and whether it was there already.
struct PlanEntry {
  ExpertKey key;
  int32_t slot = -1;        ///< global slot number
  uint64_t generation = 0;  ///< the slot's generation when planned
  bool hit = false;
};

/// What acquire() pinned, in the order asked for. Must be given back to release() exactly once.
struct Plan {
  std::vector<PlanEntry> entries;
};

/// The bookkeeping of a bounded expert cache: which expert is in which slot, which slots are pinned, which is
/// given away next. No I/O, no threads, no memory but its tables, so that it can be property-tested and
/// policies simulated.
///
/// A slot has a key, a generation (bumped whenever it is given a new key) and a pin count. A pinned slot is
/// never given away. Classes are never mixed.
///
/// An expert is used when it is acquired, hit or not, in the order of the ids of one acquire(); releasing is
/// no use. The victim is the first unpinned slot in the order of eviction, where slots without a key come
/// before all others. Every operation is O(1) an expert (but for what the order takes), and the pinned slots
/// that the search for victims passes: they are nearly always recent.
class ExpertPool {
 public:
  /// `class_of_layer[l]` is the index into `classes` for layer l.
  ExpertPool(std::vector<int> class_of_layer, int n_experts, const std::vector<SlotClass>& classes,
             std::unique_ptr<EvictionOrder> order = std::make_unique<LeastRecentlyUsed>());

  /// Pins the given distinct experts of a layer: those resident are hits, the others get the unpinned slots
  /// of the class that come first in the order of eviction, whose old keys are forgotten. Aborts when fewer
  /// slots are unpinned than needed(layer, experts).
  Plan acquire(int layer, std::span<const int32_t> experts);

  /// Unpins. Checks that no slot of the plan changed its generation meanwhile.
  void release(Plan& plan);

  /// One more pin of, and one pin less on, a slot that is pinned already: for whoever still writes to it.
  void pin(const PlanEntry& entry);
  void unpin(const PlanEntry& entry);

  /// Forgets the key of a pinned slot whose load failed. Its pins stay until they are released.
  void invalidate(const PlanEntry& entry);

  /// The expert of a pinned slot is not worth keeping: from now on its slot comes before all that are in use.
  /// Nothing happens if its load has failed meanwhile.
  void retire(const PlanEntry& entry);

  /// The slot that the next miss of this layer gets; -1: all are pinned.
  int32_t victim(int layer) const;
  /// Unpinned slots of this layer's class.
  int available(int layer) const;
  /// Unpinned slots that acquiring these distinct experts would pin.
  int needed(int layer, std::span<const int32_t> experts) const;

  /// Most experts of a layer to acquire at once, for tokens that use `n_experts_used` each: a quarter of the
  /// class, so that a second plan fits and half of the slots keep what they have, or what one token needs
  /// where that is more.
  int largest_plan(int layer, int n_experts_used) const;
  /// How many of `n` experts that a chunk of tokens uses in a layer should stay for later tokens: all, if the
  /// layer's share of the class holds them, otherwise what is left of its share when two largest plans are
  /// taken away for experts that come and go. The others are to be retired.
  int worth_keeping(int layer, int n_experts_used, int n) const;
  /// Slots of the class that then are kept in all its layers.
  int kept_slots(int layer, int n_experts_used) const;
  /// True when two plans of that size may live at the same time.
  bool two_plans_fit(int layer, int n_experts_used) const {
    return 2 * largest_plan(layer, n_experts_used) <= n_slots(layer);
  }

  bool resident(ExpertKey key) const { return slot_of(key) >= 0; }
  int32_t slot_of(ExpertKey key) const;  ///< -1: not resident
  ExpertKey key_of(int32_t slot) const;  ///< layer -1: none
  uint64_t generation(int32_t slot) const;
  int pins(int32_t slot) const;
  int number_in_class(int32_t slot) const;  ///< from 0
  int n_slots() const { return static_cast<int>(slots_.size()); }
  int n_slots(int layer) const;
  int n_classes() const { return static_cast<int>(classes_.size()); }
  int class_of(int layer) const;
  /// Byte offset of a slot in one arena that holds all classes one after another.
  size_t slot_offset(int32_t slot) const;
  size_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Slot {
    ExpertKey key;
    uint64_t generation = 0;
    int32_t pins = 0;
    int32_t slot_class = 0;
  };
  struct Class {
    SlotClass size;
    int32_t first_slot = 0;
    size_t offset = 0;  ///< of the first slot in the arena
    int32_t unpinned = 0;
    int n_layers = 0;
  };

  size_t index(ExpertKey key) const;
  Slot& checked(const PlanEntry& entry);

  std::vector<int> class_of_layer_;
  int n_experts_;
  std::unique_ptr<EvictionOrder> order_;
  std::vector<Class> classes_;
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_of_;  ///< [layer * n_experts + expert]
  size_t arena_bytes_ = 0;
};

}  // namespace redlite::experts
