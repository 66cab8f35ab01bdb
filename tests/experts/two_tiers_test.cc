#include "experts/two_tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "experts/pool.h"

namespace redlite::experts {
namespace {

constexpr int kExperts = 64;

/// Two pools in a row, driven as HostWalk drives them: what the near one lacks is acquired from the far one.
class Pools {
 public:
  Pools(std::vector<int> class_of_layer, const std::vector<SlotClass>& near,
        const std::vector<SlotClass>& far)
      : Pools(class_of_layer, near, far, TwoTiers(class_of_layer, kExperts, 2)) {}

  /// True when the file had to be read.
  bool use(int layer, int32_t expert) {
    Plan near = near_pool.acquire(layer, {&expert, 1});
    bool read = false;
    if (!near.entries[0].hit) {
      Plan far = far_pool.acquire(layer, {&expert, 1});
      read = !far.entries[0].hit;
      far_pool.release(far);
    }
    near_pool.release(near);
    return read;
  }

  int in_both(int layer) const {
    int n = 0;
    for (int e = 0; e < kExperts; ++e) n += near_pool.resident({layer, e}) && far_pool.resident({layer, e});
    return n;
  }

  ExpertPool near_pool, far_pool;

 private:
  Pools(const std::vector<int>& class_of_layer, const std::vector<SlotClass>& near,
        const std::vector<SlotClass>& far, const TwoTiers& tiers)
      : near_pool(class_of_layer, kExperts, near, tiers.near_order()),
        far_pool(class_of_layer, kExperts, far, tiers.far_order()) {}
};

std::vector<int32_t> in_order(const EvictionOrder& order, int slot_class) {
  std::vector<int32_t> slots;
  for (int32_t slot = order.first(slot_class); slot >= 0; slot = order.after(slot)) slots.push_back(slot);
  return slots;
}

// Round and round through more experts than the near cache holds: least recently used orders would read all
// of them again and again.
TEST(TwoTiers, TheCachesTogetherHoldWhatFitsIntoBoth) {
  Pools pools({0}, {{4096, 20}}, {{4096, 20}});
  int reads = 0;
  for (int round = 0; round < 50; ++round) {
    if (round == 5) reads = 0;
    for (int32_t e = 0; e < 34; ++e) reads += pools.use(0, e) ? 1 : 0;
  }
  EXPECT_EQ(reads, 0);
  EXPECT_LE(pools.in_both(0), 6);
}

// What was once used often gives way when it is used no more, wherever it lies.
TEST(TwoTiers, NobodyStaysForEver) {
  for (const auto& [near, far] : {std::pair{20, 10}, {10, 20}, {20, 1}, {3, 30}}) {
    Pools pools({0}, {{4096, near}}, {{4096, far}});
    std::mt19937 random(1);
    for (int i = 0; i < 1000; ++i) pools.use(0, static_cast<int32_t>(random() % 32));
    for (int i = 0; i < 1000; ++i) pools.use(0, 32 + static_cast<int32_t>(random() % 32));
    for (int e = 0; e < 32; ++e) {
      EXPECT_FALSE(pools.near_pool.resident({0, e})) << near << " and " << far << " slots, expert " << e;
      EXPECT_FALSE(pools.far_pool.resident({0, e})) << near << " and " << far << " slots, expert " << e;
    }
  }
}

// Every slot of a class has its place in the order, vacant ones and those that nobody misses first, whatever
// became of it.
TEST(TwoTiers, TheOrderHasEverySlotOnce) {
  const TwoTiers tiers({0, 1, 0}, 8, 1);
  std::unique_ptr<EvictionOrder> orders[2] = {tiers.near_order(), tiers.far_order()};
  constexpr int kSlots[2] = {5, 3};  // of each class
  struct Slot {
    ExpertKey key;
    bool vacant = true;
  };
  std::vector<Slot> slots[2];
  for (int tier = 0; tier < 2; ++tier) {
    for (int slot = 0; slot < 2 * kSlots[tier]; ++slot) orders[tier]->add(slot, slot / kSlots[tier]);
    slots[tier].resize(static_cast<size_t>(2 * kSlots[tier]));
  }
  std::mt19937 random(7);
  for (int step = 0; step < 5000; ++step) {
    const int tier = static_cast<int>(random() % 2), slot = static_cast<int>(random() % slots[tier].size());
    Slot& s = slots[tier][static_cast<size_t>(slot)];
    const int layer = slot / kSlots[tier] == 1 ? 1 : static_cast<int>(random() % 2) * 2;
    const ExpertKey key{layer, static_cast<int32_t>(random() % 8)};
    const bool elsewhere = std::ranges::any_of(
        slots[tier], [&](const Slot& other) { return &other != &s && !other.vacant && other.key == key; });
    if (random() % 4 == 0) {
      orders[tier]->forget(slot);
      s.vacant = true;
    } else if (!elsewhere) {
      orders[tier]->use(slot, key, false);
      s = {key, false};
    }
    for (int t = 0; t < 2; ++t) {
      for (int c = 0; c < 2; ++c) {
        const std::vector<int32_t> order = in_order(*orders[t], c);
        ASSERT_EQ(order.size(), static_cast<size_t>(kSlots[t])) << "step " << step;
        ASSERT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), order.size());
        ASSERT_TRUE(std::ranges::is_partitioned(
            order, [&](int32_t i) { return slots[t][static_cast<size_t>(i)].vacant; }));
        ASSERT_TRUE(std::ranges::all_of(order, [&](int32_t i) { return i / kSlots[t] == c; }));
      }
    }
  }
}

}  // namespace
}  // namespace redlite::experts
