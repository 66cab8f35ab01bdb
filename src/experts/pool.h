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
///
/// An expert is used when it is acquired, hit or not, in the order of the ids of one acquire(); releasing is
/// no use. The victim is the unpinned slot whose last use is the longest ago; slots without a key come before
/// all others. Every operation is O(1) an expert, but for the pinned slots that the search for victims
/// passes: it starts at the least recently used slot, and pinned ones are nearly always recent.
class ExpertPool {
 public:
  /// `class_of_layer[l]` is the index into `classes` for layer l.
  ExpertPool(std::vector<int> class_of_layer, int n_experts, const std::vector<SlotClass>& classes);

  /// Pins the given distinct experts of a layer: those resident are hits, the others get the least recently
  /// used unpinned slots of the class, whose old keys are forgotten. Aborts when fewer slots are unpinned
  /// than needed(layer, experts).
  Plan acquire(int layer, std::span<const int32_t> experts);

  /// Unpins. Checks that no slot of the plan changed its generation meanwhile.
  void release(Plan& plan);

  /// One more pin of, and one pin less on, a slot that is pinned already: for whoever still writes to it.
  void pin(const PlanEntry& entry);
  void unpin(const PlanEntry& entry);

  /// Forgets the key of a pinned slot whose load failed. Its pins stay until they are released.
  void invalidate(const PlanEntry& entry);

  /// Unpinned slots of this layer's class.
  int available(int layer) const;
  /// Unpinned slots that acquiring these distinct experts would pin.
  int needed(int layer, std::span<const int32_t> experts) const;

  bool resident(ExpertKey key) const { return slot_of(key) >= 0; }
  int32_t slot_of(ExpertKey key) const;  ///< -1: not resident
  ExpertKey key_of(int32_t slot) const;  ///< layer -1: none
  uint64_t generation(int32_t slot) const;
  int pins(int32_t slot) const;
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
    int32_t older = -1;  ///< the neighbours in the order of use
    int32_t newer = -1;
    int32_t pins = 0;
    int32_t slot_class = 0;
  };
  struct Class {
    SlotClass size;
    int32_t first_slot = 0;
    size_t offset = 0;  ///< of the first slot in the arena
    int32_t oldest = -1;
    int32_t newest = -1;
    int32_t unpinned = 0;
  };

  size_t index(ExpertKey key) const;
  Slot& checked(const PlanEntry& entry);
  void unlink(int32_t slot);
  void make_newest(int32_t slot);
  void make_oldest(int32_t slot);

  std::vector<int> class_of_layer_;
  int n_experts_;
  std::vector<Class> classes_;
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_of_;  ///< [layer * n_experts + expert]
  size_t arena_bytes_ = 0;
};

}  // namespace redlite::experts
