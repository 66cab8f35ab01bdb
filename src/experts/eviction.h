#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace redlite::experts {

/// One routed expert of one layer.
struct ExpertKey {
  int32_t layer = -1;
  int32_t expert = -1;
  bool operator==(const ExpertKey&) const = default;
};

/// In which order the slots of a class are given away. ExpertPool reports what happens to its slots and takes
/// the first unpinned one of the order; pins are no business of the order's.
class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;

  /// A slot without a key. Called once for every slot, in rising number, before all else.
  virtual void add(int32_t slot, int slot_class) = 0;
  /// The slot's expert was acquired; a hit if it was there, otherwise it has just been given the slot.
  virtual void use(int32_t slot, ExpertKey key, bool hit) = 0;
  /// The slot has no key any more, or an expert that is not worth keeping: it comes before all others.
  virtual void forget(int32_t slot) = 0;

  virtual int32_t first(int slot_class) const = 0;  ///< the slot to give away first; -1: there is none
  virtual int32_t after(int32_t slot) const = 0;    ///< the one after it; -1: it was the last
};

/// Doubly linked lists of slots, each slot in one of them; all operations are O(1).
class SlotLists {
 public:
  /// The next slot (they are numbered from 0), at the back of a list.
  void add(int list);
  void move_to_back(int32_t slot, int list);
  void move_to_front(int32_t slot, int list);

  int list_of(int32_t slot) const { return links_[static_cast<size_t>(slot)].list; }
  int32_t front(int list) const;                                                       ///< -1: empty
  int32_t next(int32_t slot) const { return links_[static_cast<size_t>(slot)].next; }  ///< -1: the last
  int size(int list) const;

 private:
  struct Links {
    int32_t previous = -1;
    int32_t next = -1;
    int list = 0;
  };
  struct List {
    int32_t front = -1;
    int32_t back = -1;
    int size = 0;
  };

  void unlink(int32_t slot);
  void link(int32_t slot, int list, bool at_back);

  std::vector<Links> links_;
  std::vector<List> lists_;
};

/// What the engine uses: the slot whose last use is the longest ago comes first. O(1).
class LeastRecentlyUsed final : public EvictionOrder {
 public:
  void add(int32_t, int slot_class) override { lists_.add(slot_class); }
  void use(int32_t slot, ExpertKey, bool) override { lists_.move_to_back(slot, lists_.list_of(slot)); }
  void forget(int32_t slot) override { lists_.move_to_front(slot, lists_.list_of(slot)); }
  int32_t first(int slot_class) const override { return lists_.front(slot_class); }
  int32_t after(int32_t slot) const override { return lists_.next(slot); }

 private:
  SlotLists lists_;  ///< one for each class
};

}  // namespace redlite::experts
