// Each order of eviction against the same written as plainly as possible: after every step of a random walk
// the whole order is the same.
#include "simulate/policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <map>
#include <random>

namespace redlite::simulate {
namespace {

using experts::EvictionOrder;
using experts::ExpertKey;

constexpr int kLayers = 2, kExperts = 7;
const std::vector<int> kClassOfSlot = {0, 0, 0, 0, 0, 1, 1, 1};

std::vector<int32_t> walk(const EvictionOrder& order, int slot_class) {
  std::vector<int32_t> slots;
  for (int32_t slot = order.first(slot_class); slot >= 0; slot = order.after(slot)) slots.push_back(slot);
  return slots;
}

struct Step {
  uint32_t time;
  int32_t slot;
  ExpertKey key;
  bool hit;
};

/// What happened to the slots of one class so far, and which order of them it should mean.
using Expected = std::function<std::vector<int32_t>(const std::vector<Step>& steps, int slot_class)>;

/// A random walk: slots are used by the expert they have (a hit) or another one, or forgotten (layer -1).
std::vector<Step> random_steps(int n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  std::vector<ExpertKey> keys(kClassOfSlot.size());
  std::vector<Step> steps;
  for (uint32_t time = 0; time < static_cast<uint32_t>(n); ++time) {
    const size_t slot = below(keys.size());
    const bool hit = keys[slot].layer >= 0 && below(2) == 0;
    if (!hit) {
      const ExpertKey key{kClassOfSlot[slot], static_cast<int32_t>(below(kExperts))};
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;  // it is in another slot
      keys[slot] = key;
    }
    if (below(20) == 0) keys[slot] = {};
    steps.push_back({time, static_cast<int32_t>(slot), keys[slot], hit});
  }
  return steps;
}

void compare(EvictionOrder& order, const std::vector<Step>& steps, const Expected& expected,
             const std::function<void(uint32_t)>& set_time = {}) {
  for (size_t slot = 0; slot < kClassOfSlot.size(); ++slot)
    order.add(static_cast<int32_t>(slot), kClassOfSlot[slot]);
  EXPECT_EQ(walk(order, 0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  std::vector<Step> done;
  for (const Step& step : steps) {
    if (set_time) set_time(step.time);
    if (step.key.layer < 0) {
      order.forget(step.slot);
    } else {
      order.use(step.slot, step.key, step.hit);
    }
    done.push_back(step);
    for (int c = 0; c < 2; ++c) ASSERT_EQ(walk(order, c), expected(done, c)) << "after step " << done.size();
  }
}

/// Slots of a class by a rank, lowest first, then by number.
std::vector<int32_t> by_rank(const std::vector<Step>& steps, int slot_class,
                             const std::function<double(const Step& last)>& rank) {
  std::map<int32_t, double> ranks;
  for (size_t slot = 0; slot < kClassOfSlot.size(); ++slot)
    if (kClassOfSlot[slot] == slot_class) ranks[static_cast<int32_t>(slot)] = -INFINITY;
  std::map<int32_t, const Step*> last;
  for (const Step& step : steps) last[step.slot] = &step;
  for (auto& [slot, value] : ranks)
    if (last.count(slot) > 0 && last[slot]->key.layer >= 0) value = rank(*last[slot]);
  std::vector<int32_t> slots;
  for (const auto& [slot, value] : ranks) slots.push_back(slot);
  std::stable_sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) { return ranks[a] < ranks[b]; });
  return slots;
}

TEST(LeastRecentlyUsed, LikeAList) {
  experts::LeastRecentlyUsed order;
  std::list<int32_t> lists[2];
  for (size_t slot = 0; slot < kClassOfSlot.size(); ++slot)
    lists[kClassOfSlot[slot]].push_back(static_cast<int32_t>(slot));
  size_t seen = 0;
  compare(order, random_steps(20000, 1), [&](const std::vector<Step>& steps, int c) {
    if (seen < steps.size()) {
      const Step& step = steps[seen++];
      std::list<int32_t>& list = lists[kClassOfSlot[static_cast<size_t>(step.slot)]];
      list.remove(step.slot);
      list.insert(step.key.layer < 0 ? list.begin() : list.end(), step.slot);
    }
    return std::vector<int32_t>(lists[c].begin(), lists[c].end());
  });
}

TEST(SegmentedLru, LikeTwoLists) {
  SegmentedLru order;
  std::list<int32_t> first[2], second[2];
  for (size_t slot = 0; slot < kClassOfSlot.size(); ++slot)
    first[kClassOfSlot[slot]].push_back(static_cast<int32_t>(slot));
  size_t seen = 0;
  compare(order, random_steps(20000, 2), [&](const std::vector<Step>& steps, int c) {
    if (seen < steps.size()) {
      const Step& step = steps[seen++];
      const int k = kClassOfSlot[static_cast<size_t>(step.slot)];
      first[k].remove(step.slot);
      second[k].remove(step.slot);
      if (step.key.layer < 0) {
        first[k].push_front(step.slot);
      } else if (!step.hit) {
        first[k].push_back(step.slot);
      } else {
        second[k].push_back(step.slot);
        if (second[k].size() > (first[k].size() + second[k].size()) * 4 / 5) {
          first[k].push_back(second[k].front());
          second[k].pop_front();
        }
      }
    }
    std::vector<int32_t> all(first[c].begin(), first[c].end());
    all.insert(all.end(), second[c].begin(), second[c].end());
    return all;
  });
}

TEST(DecayedFrequency, LikeASumOverAllUses) {
  constexpr double kHalfLife = 13;
  DecayedFrequency order(kLayers, kExperts, kHalfLife);
  compare(order, random_steps(1500, 3), [&](const std::vector<Step>& steps, int c) {
    // The sum when the slot was last used decides, all later ones being smaller by the same factor.
    // Forgetting is no use.
    return by_rank(steps, c, [&](const Step& last) {
      double uses = 0, sum = 0;
      for (const Step& step : steps) {
        if (step.key.layer < 0) continue;
        if (step.key == last.key) sum += std::exp2(uses / kHalfLife - 100);
        ++uses;
      }
      return sum;
    });
  });
}

TEST(Clairvoyant, LikeLookingThroughTheFuture) {
  const std::vector<Step> steps = random_steps(2000, 4);
  Future future(kLayers, kExperts);
  for (const Step& step : steps)
    if (step.key.layer >= 0) future.add(step.key.layer, {&step.key.expert, 1}, step.time);
  Clairvoyant order(future);
  compare(
      order, steps,
      [&](const std::vector<Step>& done, int c) {
        return by_rank(done, c, [&](const Step& last) {
          for (size_t i = done.size(); i < steps.size(); ++i)
            if (steps[i].key == last.key) return -static_cast<double>(steps[i].time);
          return -1e300;
        });
      },
      [&](uint32_t time) { order.set_time(time); });
}

}  // namespace
}  // namespace redlite::simulate
