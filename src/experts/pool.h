#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace redlite::experts {

/// One routed expert of one layer.
struct ExpertKey {
  int32_t layer = -1;
  int32_t expert = -1;
  bool operator==(const ExpertKey&) const = default;
};

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
/// the least recently used. No I/O, no threads, no memory but its tables, so that it can be property-tested
/// and its policy simulated.
///
/// A slot has a key, a generation (bumped whenever it is given a new key) and a pin count. A pinned slot is
/// never given away. Classes are never mixed.
class ExpertPool {
 public:
  /// `class_of_layer[l]` is the index into `classes` for layer l.
  ExpertPool(std::vector<int> class_of_layer, int n_experts, std::vector<SlotClass> classes);

  /// Pins the given distinct experts of a layer: those resident are hits, the others get the least recently
  /// used unpinned slots of the class, whose old keys are forgotten. Aborts when more are asked for than
  /// available(layer) allows.
  Plan acquire(int layer, std::span<const int32_t> experts);

  /// Unpins. Checks that no slot of the plan changed its generation meanwhile.
  void release(Plan& plan);

  /// Forgets the key of a slot whose load failed; it must be pinned by this plan only.
  void invalidate(const PlanEntry& entry);

  /// Experts of this layer's class that acquire() could give slots to now: unpinned slots.
  int available(int layer) const;
  bool resident(ExpertKey key) const;
  uint64_t generation(int32_t slot) const;
  int pins(int32_t slot) const;
  int n_slots() const;
  int n_slots(int layer) const;
  /// Byte offset of a slot in one arena that holds all classes one after another.
  size_t slot_offset(int32_t slot) const;
  size_t arena_bytes() const;

 private:
  // The owner of this folder decides.
};

}  // namespace redlite::experts
