#include "experts/prefetch.h"

#include <gtest/gtest.h>

namespace redlite::experts {
namespace {

using Candidates = std::vector<PrefetchPlan::Candidate>;

TEST(PrefetchPlan, OffersTheBestFirstUntilTheLayerIsAcquired) {
  PrefetchPlan plan(4);
  plan.predict(3, Candidates{{7, 0}, {5, 2}, {9, 3}});
  EXPECT_EQ(plan.next(), (ExpertKey{3, 7}));
  plan.acquired(2, std::vector<int32_t>{5});  // another layer
  EXPECT_EQ(plan.next(), (ExpertKey{3, 5}));
  plan.acquired(3, std::vector<int32_t>{7});
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.next(), std::nullopt);
}

TEST(PrefetchPlan, ANewPredictionReplacesTheOld) {
  PrefetchPlan plan(4);
  plan.predict(3, Candidates{{7, 0}});
  plan.predict(4, Candidates{{1, 0}});
  EXPECT_EQ(plan.next(), (ExpertKey{4, 1}));
  EXPECT_TRUE(plan.empty());
}

TEST(PrefetchPlan, PredictionsOfSeveralLayersAreJudgedWhenTheirLayersAreAcquired) {
  PrefetchPlan plan(1, 2);
  for (int layer = 0; layer < 100; ++layer) {
    plan.predict(layer + 2, Candidates{{layer % 2, 0}});
    plan.acquired(layer + 1, std::vector<int32_t>{1});  // the first one nobody predicted
    EXPECT_FALSE(plan.empty()) << "the newest still waits";
  }
  EXPECT_GT(plan.precision(0), 0.5);
  EXPECT_LT(plan.precision(0), 0.8) << "every other one was wrong";
  EXPECT_EQ(plan.next(), (ExpertKey{101, 1}));
}

TEST(PrefetchPlan, ARankThatIsMostlyWrongIsNotLoadedUntilItDoesBetter) {
  PrefetchPlan plan(2);
  const auto round = [&](bool second_comes_true) {
    plan.predict(0, Candidates{{1, 0}, {2, 1}});
    int offered = 0;
    while (plan.next()) ++offered;
    plan.acquired(0, std::vector<int32_t>{1, second_comes_true ? 2 : 3});
    return offered;
  };
  EXPECT_EQ(round(false), 2);
  for (int i = 0; i < 300; ++i) round(false);
  EXPECT_EQ(round(false), 1);
  EXPECT_LT(plan.precision(1), 0.02);
  EXPECT_GT(plan.precision(0), 0.99);
  for (int i = 0; i < 100; ++i) round(true);
  EXPECT_EQ(round(true), 2);
}

}  // namespace
}  // namespace redlite::experts
