#include "experts/two_tiers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace redlite::experts {
namespace {

/// Of the far cache's slots this part may hold experts that are in the near one, too. The smaller it is, the
/// more experts fit into both, and the more of those used lately come to the near one again.
constexpr double kShareOfBoth = 0.1;

enum Tier : int { kNear, kFar };
enum Where : int { kNearAlone, kFarAlone, kBoth, kNowhere };
constexpr int kPlaces = 4;

constexpr Where alone(Tier tier) {
  return tier == kNear ? kNearAlone : kFarAlone;
}

}  // namespace

struct TwoTiers::Shared {
  /// Experts by where they are, by class, in the order of their last use. (Who was in both comes behind those
  /// alone in the cache that keeps it: as it is the least recently used of both, that is nearly its place.)
  SlotLists places;
  std::vector<int> class_of_layer;
  int n_experts, n_experts_used;
  std::vector<uint64_t> last_use;  ///< [expert of all layers]
  uint64_t now = 0;
  std::vector<int> far_slots;                      ///< [class]
  std::array<std::vector<int32_t>, 2> slots = {};  ///< [tier][expert of all layers]: its slot, or -1
  static int list(int slot_class, Where where) { return slot_class * kPlaces + where; }

  int32_t number(ExpertKey key) const { return key.layer * n_experts + key.expert; }
  int class_of(int32_t expert) const { return class_of_layer[static_cast<size_t>(expert / n_experts)]; }
  int32_t& slot(Tier tier, int32_t expert) {
    return slots[static_cast<size_t>(tier)][static_cast<size_t>(expert)];
  }

  Where where(int32_t expert) {
    const bool is_near = slot(kNear, expert) >= 0, is_far = slot(kFar, expert) >= 0;
    return is_near ? (is_far ? kBoth : kNearAlone) : is_far ? kFarAlone : kNowhere;
  }
  void place(int32_t expert) { places.move_to_back(expert, list(class_of(expert), where(expert))); }

  int32_t oldest(int slot_class, Where where) const { return places.front(list(slot_class, where)); }

  /// Of whom a tier takes slots first: those in both, or those it has alone.
  Where first_choice(Tier tier, int slot_class) const {
    // Those of two layers are in use, and in both.
    const double most =
        std::max(kShareOfBoth * far_slots[static_cast<size_t>(slot_class)], 2.0 * n_experts_used);
    if (places.size(list(slot_class, kBoth)) > most) return kBoth;
    const int32_t own = oldest(slot_class, alone(tier));
    const int32_t other = oldest(slot_class, alone(tier == kNear ? kFar : kNear));
    if (own < 0) return kBoth;
    if (other < 0) return alone(tier);
    return last_use[static_cast<size_t>(own)] < last_use[static_cast<size_t>(other)] ? alone(tier) : kBoth;
  }
};

class TwoTiers::Order final : public EvictionOrder {
 public:
  Order(std::shared_ptr<Shared> shared, Tier tier) : shared_(std::move(shared)), tier_(tier) {}

  void add(int32_t /*slot*/, int slot_class) override {
    vacant_.add(2 * slot_class);
    expert_of_.push_back(-1);
    if (tier_ == kNear) return;
    auto& far_slots = shared_->far_slots;
    if (static_cast<size_t>(slot_class) >= far_slots.size())
      far_slots.resize(static_cast<size_t>(slot_class) + 1);
    ++far_slots[static_cast<size_t>(slot_class)];
  }

  void use(int32_t slot, ExpertKey key, bool /*hit*/) override {
    int32_t& of_slot = expert_of_[static_cast<size_t>(slot)];
    const int32_t expert = shared_->number(key), before = std::exchange(of_slot, expert);
    if (before != expert && before >= 0) leave(before);
    vacant_.move_to_back(slot, vacant_.list_of(slot) | 1);
    shared_->slot(tier_, expert) = slot;
    shared_->last_use[static_cast<size_t>(expert)] = ++shared_->now;
    shared_->place(expert);
  }

  void forget(int32_t slot) override {
    vacant_.move_to_front(slot, vacant_.list_of(slot) & ~1);
    if (const int32_t expert = std::exchange(expert_of_[static_cast<size_t>(slot)], -1); expert >= 0)
      leave(expert);
  }

  int32_t first(int slot_class) const override {
    const int32_t vacant = vacant_.front(2 * slot_class);
    return vacant >= 0 ? vacant : first_in_use(slot_class);
  }

  int32_t after(int32_t slot) const override {
    const int slot_class = vacant_.list_of(slot) / 2;
    if (vacant_.list_of(slot) % 2 == 0) {
      const int32_t vacant = vacant_.next(slot);
      return vacant >= 0 ? vacant : first_in_use(slot_class);
    }
    const int32_t expert = expert_of_[static_cast<size_t>(slot)];
    if (const int32_t next = shared_->places.next(expert); next >= 0) return shared_->slot(tier_, next);
    const Where choice = shared_->first_choice(tier_, slot_class);
    return shared_->where(expert) == choice ? slot_of_oldest(slot_class, other(choice)) : -1;
  }

 private:
  Where other(Where choice) const { return choice == kBoth ? alone(tier_) : kBoth; }

  int32_t slot_of_oldest(int slot_class, Where where) const {
    const int32_t expert = shared_->oldest(slot_class, where);
    return expert < 0 ? -1 : shared_->slot(tier_, expert);
  }

  int32_t first_in_use(int slot_class) const {
    const Where choice = shared_->first_choice(tier_, slot_class);
    const int32_t slot = slot_of_oldest(slot_class, choice);
    return slot >= 0 ? slot : slot_of_oldest(slot_class, other(choice));
  }

  void leave(int32_t expert) {
    shared_->slot(tier_, expert) = -1;
    shared_->place(expert);
  }

  std::shared_ptr<Shared> shared_;
  Tier tier_;
  SlotLists vacant_;                ///< 2 * class: slots that nobody misses; + 1: the others
  std::vector<int32_t> expert_of_;  ///< [slot], -1: nobody's
};

TwoTiers::TwoTiers(std::vector<int> class_of_layer, int n_experts, int n_experts_used)
    : shared_(std::make_shared<Shared>()) {
  shared_->class_of_layer = std::move(class_of_layer);
  shared_->n_experts = n_experts;
  shared_->n_experts_used = n_experts_used;
  const size_t all = shared_->class_of_layer.size() * static_cast<size_t>(n_experts);
  shared_->last_use.resize(all);
  shared_->slots = {std::vector<int32_t>(all, -1), std::vector<int32_t>(all, -1)};
  for (const int slot_class : shared_->class_of_layer)
    for (int i = 0; i < n_experts; ++i) shared_->places.add(Shared::list(slot_class, kNowhere));
}

std::unique_ptr<EvictionOrder> TwoTiers::near_order() const {
  return std::make_unique<Order>(shared_, kNear);
}

std::unique_ptr<EvictionOrder> TwoTiers::far_order() const {
  return std::make_unique<Order>(shared_, kFar);
}

}  // namespace redlite::experts
