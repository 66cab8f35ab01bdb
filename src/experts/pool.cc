#include "experts/pool.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace redlite::experts {

ExpertPool::ExpertPool(std::vector<int> class_of_layer, int n_experts, const std::vector<SlotClass>& classes,
                       std::unique_ptr<EvictionOrder> order)
    : class_of_layer_(std::move(class_of_layer)),
      n_experts_(n_experts),
      order_(std::move(order)),
      slot_of_(class_of_layer_.size() * static_cast<size_t>(n_experts), -1) {
  for (const SlotClass& size : classes) {
    Class c;
    c.size = size;
    c.first_slot = n_slots();
    c.offset = arena_bytes_;
    c.unpinned = size.n_slots;
    classes_.push_back(c);
    arena_bytes_ += size.slot_bytes * static_cast<size_t>(size.n_slots);
    for (int i = 0; i < size.n_slots; ++i) {
      Slot slot;
      slot.slot_class = static_cast<int32_t>(classes_.size()) - 1;
      slots_.push_back(slot);
      order_->add(n_slots() - 1, slot.slot_class);
    }
  }
  for (const int c : class_of_layer_) {
    RL_CHECK(c >= 0 && c < n_classes(), "a layer of class {} of {}", c, n_classes());
    ++classes_[static_cast<size_t>(c)].n_layers;
  }
}

Plan ExpertPool::acquire(int layer, std::span<const int32_t> experts) {
  const int needs = needed(layer, experts);
  RL_CHECK(needs <= available(layer), "layer {} needs {} slots, {} are unpinned", layer, needs,
           available(layer));
  Class& slot_class = classes_[static_cast<size_t>(class_of(layer))];
  Plan plan;
  plan.entries.reserve(experts.size());
  // Hits are pinned first: none of them may become the victim of a miss named before it.
  for (const int32_t expert : experts) {
    PlanEntry entry;
    entry.key = {layer, expert};
    entry.slot = slot_of(entry.key);
    entry.hit = entry.slot >= 0;
    if (entry.hit && slots_[static_cast<size_t>(entry.slot)].pins++ == 0) --slot_class.unpinned;
    plan.entries.push_back(entry);
  }
  int32_t candidate = order_->first(class_of(layer));
  for (PlanEntry& entry : plan.entries) {
    if (!entry.hit) {
      RL_CHECK(slot_of(entry.key) < 0, "expert {} asked for twice", entry.key.expert);
      while (slots_[static_cast<size_t>(candidate)].pins > 0) {
        candidate = order_->after(candidate);
      }
      entry.slot = candidate;
      candidate = order_->after(candidate);
      Slot& victim = slots_[static_cast<size_t>(entry.slot)];
      if (victim.key.layer >= 0) slot_of_[index(victim.key)] = -1;
      victim.key = entry.key;
      ++victim.generation;
      victim.pins = 1;
      --slot_class.unpinned;
      slot_of_[index(entry.key)] = entry.slot;
    }
    entry.generation = slots_[static_cast<size_t>(entry.slot)].generation;
  }
  // Only now the order changes: the candidate above walks it as it was.
  for (const PlanEntry& entry : plan.entries) order_->use(entry.slot, entry.key, entry.hit);
  return plan;
}

void ExpertPool::release(Plan& plan) {
  for (const PlanEntry& entry : plan.entries) unpin(entry);
  plan.entries.clear();
}

void ExpertPool::pin(const PlanEntry& entry) {
  ++checked(entry).pins;
}

void ExpertPool::unpin(const PlanEntry& entry) {
  Slot& slot = checked(entry);
  if (--slot.pins == 0) ++classes_[static_cast<size_t>(slot.slot_class)].unpinned;
}

void ExpertPool::invalidate(const PlanEntry& entry) {
  Slot& slot = checked(entry);
  RL_CHECK(slot.key == entry.key, "slot {} was invalidated before", entry.slot);
  slot_of_[index(slot.key)] = -1;
  slot.key = {};
  order_->forget(entry.slot);
}

void ExpertPool::retire(const PlanEntry& entry) {
  if (checked(entry).key == entry.key) order_->forget(entry.slot);
}

int32_t ExpertPool::victim(int layer) const {
  int32_t slot = order_->first(class_of(layer));
  while (slot >= 0 && pins(slot) > 0) slot = order_->after(slot);
  return slot;
}

int ExpertPool::number_in_class(int32_t slot) const {
  return slot - classes_[static_cast<size_t>(slots_[static_cast<size_t>(slot)].slot_class)].first_slot;
}

int ExpertPool::available(int layer) const {
  return classes_[static_cast<size_t>(class_of(layer))].unpinned;
}

int ExpertPool::needed(int layer, std::span<const int32_t> experts) const {
  int count = 0;
  for (const int32_t expert : experts) {
    const int32_t slot = slot_of({layer, expert});
    if (slot < 0 || pins(slot) == 0) ++count;
  }
  return count;
}

int ExpertPool::largest_plan(int layer, int n_experts_used) const {
  return std::min(std::max(n_slots(layer) / 4, n_experts_used), n_experts_);
}

int ExpertPool::worth_keeping(int layer, int n_experts_used, int n) const {
  const int layers = classes_[static_cast<size_t>(class_of(layer))].n_layers;
  return n <= n_slots(layer) / layers ? n : kept_slots(layer, n_experts_used) / layers;
}

int ExpertPool::kept_slots(int layer, int n_experts_used) const {
  return std::max(n_slots(layer) - 2 * largest_plan(layer, n_experts_used), 0);
}

int32_t ExpertPool::slot_of(ExpertKey key) const {
  return slot_of_[index(key)];
}

ExpertKey ExpertPool::key_of(int32_t slot) const {
  return slots_[static_cast<size_t>(slot)].key;
}

uint64_t ExpertPool::generation(int32_t slot) const {
  return slots_[static_cast<size_t>(slot)].generation;
}

int ExpertPool::pins(int32_t slot) const {
  return slots_[static_cast<size_t>(slot)].pins;
}

int ExpertPool::n_slots(int layer) const {
  return classes_[static_cast<size_t>(class_of(layer))].size.n_slots;
}

int ExpertPool::class_of(int layer) const {
  return class_of_layer_[static_cast<size_t>(layer)];
}

size_t ExpertPool::slot_offset(int32_t slot) const {
  const Class& c = classes_[static_cast<size_t>(slots_[static_cast<size_t>(slot)].slot_class)];
  return c.offset + c.size.slot_bytes * static_cast<size_t>(slot - c.first_slot);
}

size_t ExpertPool::index(ExpertKey key) const {
  RL_CHECK(key.layer >= 0 && static_cast<size_t>(key.layer) < class_of_layer_.size() && key.expert >= 0 &&
               key.expert < n_experts_,
           "layer {} expert {}", key.layer, key.expert);
  return static_cast<size_t>(key.layer) * static_cast<size_t>(n_experts_) + static_cast<size_t>(key.expert);
}

ExpertPool::Slot& ExpertPool::checked(const PlanEntry& entry) {
  RL_CHECK(entry.slot >= 0 && entry.slot < n_slots(), "slot {} of {}", entry.slot, n_slots());
  Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  RL_CHECK(slot.generation == entry.generation, "slot {} of layer {} expert {} was reused while pinned",
           entry.slot, entry.key.layer, entry.key.expert);
  RL_CHECK(slot.pins > 0, "slot {} of layer {} expert {} is not pinned", entry.slot, entry.key.layer,
           entry.key.expert);
  return slot;
}

}  // namespace redlite::experts
