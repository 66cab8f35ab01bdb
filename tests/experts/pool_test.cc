#include "experts/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <random>
#include <utility>

namespace redlite::experts {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> slots_of(const Plan& plan) {
  std::vector<int32_t> slots;
  for (const PlanEntry& e : plan.entries) slots.push_back(e.slot);
  return slots;
}

std::vector<int32_t> ids(std::initializer_list<int32_t> list) {
  return list;
}

TEST(ExpertPool, EvictsTheLeastRecentlyUsedInTheOrderOfIds) {
  ExpertPool pool({0}, 8, {{4096, 3}});
  Plan plan = pool.acquire(0, ids({5, 6, 7}));
  EXPECT_THAT(slots_of(plan), ElementsAre(0, 1, 2));
  pool.release(plan);
  plan = pool.acquire(0, ids({5}));  // now 6 is the oldest
  EXPECT_TRUE(plan.entries[0].hit);
  pool.release(plan);
  plan = pool.acquire(0, ids({1}));
  EXPECT_THAT(slots_of(plan), ElementsAre(1));
  EXPECT_FALSE(plan.entries[0].hit);
  EXPECT_EQ(plan.entries[0].generation, 2u);
  pool.release(plan);
  EXPECT_FALSE(pool.resident({0, 6}));
  EXPECT_TRUE(pool.resident({0, 7}));
}

TEST(ExpertPool, AHitIsNeverTheVictimOfAMissNamedBeforeIt) {
  ExpertPool pool({0}, 8, {{4096, 2}});
  Plan plan = pool.acquire(0, ids({0, 1}));
  pool.release(plan);
  plan = pool.acquire(0, ids({2, 0}));  // 0 is the oldest, but asked for
  EXPECT_THAT(slots_of(plan), ElementsAre(1, 0));
  pool.release(plan);
}

TEST(ExpertPool, ARetiredExpertIsTheNextVictimUnlessItIsUsedAgain) {
  ExpertPool pool({0}, 8, {{4096, 3}});
  Plan plan = pool.acquire(0, ids({0, 1, 2}));
  pool.retire(plan.entries[1]);
  pool.release(plan);
  plan = pool.acquire(0, ids({3}));
  EXPECT_THAT(slots_of(plan), ElementsAre(1));
  pool.retire(plan.entries[0]);
  pool.release(plan);
  plan = pool.acquire(0, ids({3}));
  EXPECT_TRUE(plan.entries[0].hit);
  pool.release(plan);
  plan = pool.acquire(0, ids({4}));
  EXPECT_THAT(slots_of(plan), ElementsAre(0));
  pool.invalidate(plan.entries[0]);
  pool.retire(plan.entries[0]);  // its load failed: nothing to retire
  pool.release(plan);
}

TEST(ExpertPool, PlansAndWhatIsKeptShareTheSlots) {
  // Three layers of one class with 40 slots, one of another with 6.
  ExpertPool pool({0, 0, 1, 0}, 16, {{4096, 40}, {8192, 6}});
  EXPECT_EQ(pool.largest_plan(0, 4), 10);
  EXPECT_TRUE(pool.two_plans_fit(0, 4));
  EXPECT_EQ(pool.kept_slots(0, 4), 20);
  EXPECT_EQ(pool.worth_keeping(0, 4, 13), 13);  // a third of the slots holds them
  EXPECT_EQ(pool.worth_keeping(0, 4, 14), 6);
  EXPECT_EQ(pool.largest_plan(2, 4), 4);
  EXPECT_FALSE(pool.two_plans_fit(2, 4));
  EXPECT_EQ(pool.kept_slots(2, 4), 0);
  EXPECT_EQ(pool.worth_keeping(2, 4, 7), 0);
  EXPECT_EQ(ExpertPool({0}, 16, {{4096, 100}}).largest_plan(0, 4), 16);
}

TEST(ExpertPool, UseIsTheAcquiringNotTheReleasing) {
  ExpertPool pool({0}, 8, {{4096, 3}});
  Plan early = pool.acquire(0, ids({0}));
  Plan late = pool.acquire(0, ids({1, 2}));
  pool.release(late);
  pool.release(early);
  Plan plan = pool.acquire(0, ids({3}));
  EXPECT_THAT(slots_of(plan), ElementsAre(0));
  pool.release(plan);
}

TEST(ExpertPool, SlotsLieOneAfterAnotherInTheArena) {
  ExpertPool pool({1, 0}, 4, {{8192, 2}, {4096, 3}});
  EXPECT_EQ(pool.arena_bytes(), 2 * 8192u + 3 * 4096u);
  EXPECT_EQ(pool.slot_offset(1), 8192u);
  EXPECT_EQ(pool.slot_offset(2), 16384u);
  EXPECT_EQ(pool.slot_offset(4), 24576u);
  EXPECT_EQ(pool.n_slots(0), 3);
  EXPECT_EQ(pool.n_slots(1), 2);
}

TEST(ExpertPool, AnInvalidSlotIsForgottenButStaysPinned) {
  ExpertPool pool({0}, 8, {{4096, 2}});
  Plan failed = pool.acquire(0, ids({0}));
  const PlanEntry entry = failed.entries[0];
  pool.pin(entry);
  Plan other = pool.acquire(0, ids({1}));
  pool.invalidate(entry);
  EXPECT_FALSE(pool.resident({0, 0}));
  pool.release(failed);
  EXPECT_EQ(pool.available(0), 0);
  pool.unpin(entry);
  EXPECT_EQ(pool.available(0), 1);
  pool.release(other);
  // It is the first to be used again, although no slot was used longer ago than the other.
  Plan plan = pool.acquire(0, ids({2}));
  EXPECT_THAT(slots_of(plan), ElementsAre(0));
  pool.release(plan);
}

TEST(ExpertPoolDeathTest, MisuseAborts) {
  ExpertPool pool({0}, 8, {{4096, 2}});
  EXPECT_DEATH(pool.acquire(0, ids({0, 1, 2})), "needs 3 slots, 2 are unpinned");
  EXPECT_DEATH(pool.acquire(0, ids({8})), "expert 8");
  EXPECT_DEATH(pool.acquire(0, ids({3, 3})), "asked for twice");
  Plan plan = pool.acquire(0, ids({0}));
  Plan copy = plan;
  pool.release(plan);
  EXPECT_DEATH(pool.release(copy), "is not pinned");
  Plan next = pool.acquire(0, ids({1, 2}));
  EXPECT_DEATH(pool.release(copy), "was reused while pinned");
  pool.release(next);
}

/// The same policy as plainly as possible: a list in the order of use, searched from its old end.
class SimplePool {
 public:
  struct Slot {
    int32_t number;
    int slot_class;
    ExpertKey key;
    uint64_t generation = 0;
    int pins = 0;
  };

  SimplePool(std::vector<int> class_of_layer, const std::vector<SlotClass>& classes)
      : class_of_layer_(std::move(class_of_layer)) {
    int32_t number = 0;
    for (size_t c = 0; c < classes.size(); ++c) {
      for (int i = 0; i < classes[c].n_slots; ++i) order_.push_back({number++, static_cast<int>(c), {}});
    }
  }

  /// Returns the slots' numbers and whether each was a hit.
  std::vector<std::pair<int32_t, bool>> acquire(int layer, const std::vector<int32_t>& experts) {
    std::map<int32_t, std::pair<int32_t, bool>> found;
    for (const int32_t e : experts) {
      if (Slot* s = find({layer, e})) {
        ++s->pins;
        found[e] = {s->number, true};
      }
    }
    for (const int32_t e : experts) {
      if (found.count(e) > 0) continue;
      const auto victim = std::find_if(order_.begin(), order_.end(), [&](const Slot& s) {
        return s.pins == 0 && s.slot_class == class_of_layer_[static_cast<size_t>(layer)];
      });
      victim->key = {layer, e};
      ++victim->generation;
      victim->pins = 1;
      found[e] = {victim->number, false};
    }
    std::vector<std::pair<int32_t, bool>> result;
    for (const int32_t e : experts) {
      result.push_back(found[e]);
      order_.splice(order_.end(), order_, by_number(found[e].first));
    }
    return result;
  }

  void invalidate(int32_t number) {
    const auto s = by_number(number);
    s->key = {};
    order_.splice(order_.begin(), order_, s);
  }

  Slot* find(ExpertKey key) {
    for (Slot& s : order_) {
      if (s.key == key) return &s;
    }
    return nullptr;
  }

  std::list<Slot>::iterator by_number(int32_t number) {
    return std::find_if(order_.begin(), order_.end(), [&](const Slot& s) { return s.number == number; });
  }

  int unpinned(int slot_class) const {
    return static_cast<int>(std::count_if(order_.begin(), order_.end(), [&](const Slot& s) {
      return s.pins == 0 && s.slot_class == slot_class;
    }));
  }

  const std::list<Slot>& order() const { return order_; }

 private:
  std::vector<int> class_of_layer_;
  std::list<Slot> order_;
};

TEST(ExpertPool, AMillionRandomStepsLikeTheSimplePool) {
  constexpr int kSteps = 1'000'000;
  constexpr int kExperts = 6;
  const std::vector<int> class_of_layer = {0, 1, 0, 2, 1};
  const std::vector<int> layer_of_class = {0, 1, 3};
  const std::vector<SlotClass> classes = {{4096, 5}, {8192, 4}, {12288, 7}};
  ExpertPool pool(class_of_layer, kExperts, classes);
  SimplePool simple(class_of_layer, classes);
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };

  std::vector<Plan> plans;
  std::vector<PlanEntry> extra_pins;
  std::vector<uint64_t> generations(static_cast<size_t>(pool.n_slots()), 0);
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  int acquired = 0;
  int released = 0;
  int invalidated = 0;
  for (int step = 0; step < kSteps; ++step) {
    const size_t what = below(20);
    if (what < 9) {
      const auto layer = static_cast<int>(below(class_of_layer.size()));
      std::shuffle(all.begin(), all.end(), random);
      const std::vector<int32_t> experts(all.begin(), all.begin() + static_cast<int>(below(4)) + 1);
      if (pool.needed(layer, experts) > pool.available(layer)) continue;
      const auto expected = simple.acquire(layer, experts);
      Plan plan = pool.acquire(layer, experts);
      ASSERT_EQ(plan.entries.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const PlanEntry& e = plan.entries[i];
        ASSERT_EQ(e.key, (ExpertKey{layer, experts[i]}));
        ASSERT_EQ(e.slot, expected[i].first) << "step " << step;
        ASSERT_EQ(e.hit, expected[i].second);
        if (e.hit) continue;
        for (const Plan& live : plans) {
          for (const PlanEntry& held : live.entries) ASSERT_NE(held.slot, e.slot);
        }
        for (const PlanEntry& held : extra_pins) ASSERT_NE(held.slot, e.slot);
      }
      plans.push_back(std::move(plan));
      ++acquired;
    } else if (what < 16) {
      if (plans.empty()) continue;
      std::swap(plans[below(plans.size())], plans.back());
      for (const PlanEntry& e : plans.back().entries) --simple.by_number(e.slot)->pins;
      pool.release(plans.back());
      plans.pop_back();
      ++released;
    } else if (what < 17) {
      if (plans.empty()) continue;
      const Plan& plan = plans[below(plans.size())];
      const PlanEntry e = plan.entries[below(plan.entries.size())];
      pool.pin(e);
      ++simple.by_number(e.slot)->pins;
      extra_pins.push_back(e);
    } else if (what < 19) {
      if (extra_pins.empty()) continue;
      std::swap(extra_pins[below(extra_pins.size())], extra_pins.back());
      pool.unpin(extra_pins.back());
      --simple.by_number(extra_pins.back().slot)->pins;
      extra_pins.pop_back();
    } else {
      if (plans.empty()) continue;
      const Plan& plan = plans[below(plans.size())];
      const PlanEntry e = plan.entries[below(plan.entries.size())];
      if (pool.slot_of(e.key) != e.slot) continue;  // invalidated already
      pool.invalidate(e);
      simple.invalidate(e.slot);
      ++invalidated;
    }

    for (size_t c = 0; c < classes.size(); ++c) {
      ASSERT_EQ(pool.available(layer_of_class[c]), simple.unpinned(static_cast<int>(c)));
    }
    for (const SimplePool::Slot& s : simple.order()) {
      ASSERT_EQ(pool.key_of(s.number), s.key);
      ASSERT_EQ(pool.generation(s.number), s.generation);
      ASSERT_EQ(pool.pins(s.number), s.pins);
      ASSERT_GE(s.generation, generations[static_cast<size_t>(s.number)]);
      generations[static_cast<size_t>(s.number)] = s.generation;
      if (s.key.layer >= 0) {
        ASSERT_EQ(class_of_layer[static_cast<size_t>(s.key.layer)], s.slot_class);
        ASSERT_EQ(pool.slot_of(s.key), s.number);
      }
    }
    if (step % 64 != 0) continue;
    for (int layer = 0; layer < static_cast<int>(class_of_layer.size()); ++layer) {
      for (int32_t e = 0; e < kExperts; ++e) {
        ASSERT_EQ(pool.resident({layer, e}), simple.find({layer, e}) != nullptr);
      }
    }
  }
  EXPECT_GT(acquired, kSteps / 10);
  EXPECT_GT(released, kSteps / 10);
  EXPECT_GT(invalidated, kSteps / 100);
}

}  // namespace
}  // namespace redlite::experts
