#include "plan/reuse.h"

#include <gmock/gmock.h>

#include <random>

#include "experts/pool.h"

namespace redlite::plan {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(Reuse, ACacheOfTwoExpertsHoldsTheTwoUsedLast) {
  // Tokens of one expert each: 0 comes back after one other, then after two others.
  const Uses uses = {{{0}, {1}, {0}, {2}, {1}, {0}}};
  // From the third token on: 0 (one other since), 2 (new), 1 (two since), 0 (two since).
  EXPECT_THAT(miss_curve(uses, 2, 3), ElementsAre(1, 1, DoubleEq(0.75), DoubleEq(0)));
}

// The curve is what a pool with the same share of slots in each layer counts.
TEST(Reuse, TheCurveIsThatOfAPool) {
  constexpr int kLayers = 3, kExperts = 24, kUsed = 4, kTokens = 200, kFirst = 60;
  std::mt19937 random(1);
  Uses uses(kLayers);
  for (auto& layer : uses) {
    for (int t = 0; t < kTokens; ++t) {
      std::vector<int>& ids = layer.emplace_back();
      while (ids.size() < kUsed) {
        const int id = static_cast<int>(std::min(random() % kExperts, random() % kExperts));
        if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
      }
    }
  }
  const std::vector<double> curve = miss_curve(uses, kFirst, kExperts);
  for (const int slots : {8, 12, 20}) {
    int misses = 0, all = 0;
    for (const auto& layer : uses) {
      experts::ExpertPool pool({0}, kExperts, {{4096, slots}});
      for (int t = 0; t < kTokens; ++t) {
        const std::vector<int32_t> ids(layer[static_cast<size_t>(t)].begin(),
                                       layer[static_cast<size_t>(t)].end());
        experts::Plan plan = pool.acquire(0, ids);
        for (const experts::PlanEntry& entry : plan.entries) {
          if (t < kFirst) continue;
          ++all;
          misses += entry.hit ? 0 : 1;
        }
        pool.release(plan);
      }
    }
    EXPECT_NEAR(curve[static_cast<size_t>(slots)], static_cast<double>(misses) / all, 1e-12) << slots;
  }
}

TEST(Reuse, BeyondWhatTheTokensUsedTheCurveFallsToNothing) {
  const Uses uses = {{{0}, {1}, {2}, {3}}};
  EXPECT_THAT(miss_curve(uses, 0, 8), ElementsAre(1, 1, 1, 1, DoubleEq(1), DoubleEq(0.75), DoubleEq(0.5),
                                                  DoubleEq(0.25), DoubleEq(0)));
}

TEST(Reuse, DistinctExpertsAreThoseOfTheRange) {
  const Uses uses = {{{0, 1}, {1, 2}, {5, 6}}, {{0, 1}, {0, 1}, {0, 1}}};
  EXPECT_THAT(distinct_uses(uses, 0, 2), DoubleEq(2.5));
  EXPECT_THAT(distinct_uses(uses, 2, 3), DoubleEq(2));
}

TEST(Reuse, SpreadAndDistinctAreEachOthersInverse) {
  for (const double spread : {20.0, 200.0, 511.0}) {
    const double distinct = distinct_of(spread, 64, 10);
    EXPECT_LE(distinct, spread);
    EXPECT_THAT(spread_of(distinct, 64, 10, 512), DoubleNear(spread, 0.01 * spread));
  }
  EXPECT_THAT(distinct_of(10, 64, 10), DoubleEq(10)) << "every token the same experts";
}

}  // namespace
}  // namespace redlite::plan
