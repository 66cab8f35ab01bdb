#include "experts/eviction.h"

#include <algorithm>

namespace redlite::experts {

void SlotLists::add(int list) {
  lists_.resize(std::max(lists_.size(), static_cast<size_t>(list) + 1));
  links_.emplace_back();
  link(static_cast<int32_t>(links_.size()) - 1, list, true);
}

void SlotLists::move_to_back(int32_t slot, int list) {
  unlink(slot);
  link(slot, list, true);
}

void SlotLists::move_to_front(int32_t slot, int list) {
  unlink(slot);
  link(slot, list, false);
}

int32_t SlotLists::front(int list) const {
  return static_cast<size_t>(list) < lists_.size() ? lists_[static_cast<size_t>(list)].front : -1;
}

int SlotLists::size(int list) const {
  return static_cast<size_t>(list) < lists_.size() ? lists_[static_cast<size_t>(list)].size : 0;
}

void SlotLists::unlink(int32_t slot) {
  const Links& s = links_[static_cast<size_t>(slot)];
  List& list = lists_[static_cast<size_t>(s.list)];
  (s.previous >= 0 ? links_[static_cast<size_t>(s.previous)].next : list.front) = s.next;
  (s.next >= 0 ? links_[static_cast<size_t>(s.next)].previous : list.back) = s.previous;
  --list.size;
}

void SlotLists::link(int32_t slot, int list_number, bool at_back) {
  lists_.resize(std::max(lists_.size(), static_cast<size_t>(list_number) + 1));
  List& list = lists_[static_cast<size_t>(list_number)];
  Links& s = links_[static_cast<size_t>(slot)];
  s.list = list_number;
  s.previous = at_back ? list.back : -1;
  s.next = at_back ? -1 : list.front;
  (s.previous >= 0 ? links_[static_cast<size_t>(s.previous)].next : list.front) = slot;
  (s.next >= 0 ? links_[static_cast<size_t>(s.next)].previous : list.back) = slot;
  ++list.size;
}

}  // namespace redlite::experts
