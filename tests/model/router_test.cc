#include "model/router.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace redlite::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

std::vector<int32_t> select(const std::vector<float>& logits, size_t used) {
  std::vector<int32_t> ids(used);
  std::vector<float> weights(used);
  select_experts(logits, 1, ids, weights);
  return ids;
}

TEST(RouterLogit, SumsInSixteenLanesThenFoldsInHalves) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-1, 1);
  const std::vector<float> ones(32, 1.0f);
  for (int round = 0; round < 100; ++round) {
    std::vector<float> w(32);
    for (float& v : w) v = value(random);
    std::array<float, 16> l;
    for (size_t j = 0; j < 16; ++j) l[j] = w[j] + w[j + 16];
    const float even = ((l[0] + l[8]) + (l[4] + l[12])) + ((l[2] + l[10]) + (l[6] + l[14]));
    const float odd = ((l[1] + l[9]) + (l[5] + l[13])) + ((l[3] + l[11]) + (l[7] + l[15]));
    EXPECT_EQ(router_logit(w.data(), ones.data(), 32), even + odd);
  }
}

TEST(RouterLogit, FusesMultiplyAndAdd) {
  const float a = 1 + 0x1p-12f;
  std::vector<float> w(17, 0.0f), x(17, 0.0f);
  w[0] = -1, x[0] = 1;
  w[16] = a, x[16] = a;  // a * a - 1 without rounding a * a first
  EXPECT_EQ(router_logit(w.data(), x.data(), 17), 0x1p-11f + 0x1p-24f);
}

TEST(RouterLogit, TakesAnyLength) {
  std::vector<float> w(40), x(40, 1.0f);
  std::iota(w.begin(), w.end(), 1.0f);
  for (int n = 1; n <= 40; ++n)
    EXPECT_EQ(router_logit(w.data(), x.data(), n), static_cast<float>(n * (n + 1) / 2));
}

TEST(RouterExp, IsCloseToTheExponential) {
  EXPECT_EQ(router_exp(0), 1);
  EXPECT_EQ(router_exp(-100), 0);
  EXPECT_TRUE(std::isnan(router_exp(std::numeric_limits<float>::quiet_NaN())));
  for (float x = 0; x > -87; x -= 0.0137f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(router_exp(x), exact, 0x1p-22 * exact) << x;
  }
}

TEST(SelectExperts, BestFirst) {
  EXPECT_THAT(select({0.1f, 3, -1, 2, 2.5f}, 3), ElementsAre(1, 4, 3));
  EXPECT_THAT(select({5}, 1), ElementsAre(0));
  EXPECT_THAT(select({1, 2, 3}, 3), ElementsAre(2, 1, 0));
}

TEST(SelectExperts, TiesGoToTheLowerId) {
  EXPECT_THAT(select({1, 2, 2, 1, 2}, 2), ElementsAre(1, 2));
  EXPECT_THAT(select({1, 2, 2, 1, 2}, 4), ElementsAre(1, 2, 4, 0));
  EXPECT_THAT(select({7, 7, 7, 7}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(select({-0.0f, 0.0f}, 1), ElementsAre(0));  // equal as numbers
}

TEST(SelectExperts, NanComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(select({nan, 1, nan, 2}, 3), ElementsAre(3, 1, 0));
  EXPECT_THAT(select({nan, nan, nan}, 2), ElementsAre(0, 1));
}

TEST(SelectExperts, WeightsAreTheSelectedShareOfTheSoftmax) {
  std::vector<int32_t> ids(2);
  std::vector<float> weights(2);
  select_experts(std::vector<float>{0, std::log(2.0f), std::log(6.0f), -1}, 1, ids, weights);
  EXPECT_THAT(ids, ElementsAre(2, 1));
  EXPECT_THAT(weights, ElementsAre(FloatEq(0.75f), FloatEq(0.25f)));
  select_experts(std::vector<float>{0, std::log(2.0f), std::log(6.0f), -1}, 2, ids, weights);
  EXPECT_THAT(weights, ElementsAre(FloatEq(1.5f), FloatEq(0.5f)));
}

TEST(SelectExperts, WeightsComeFromTheSelectedAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<int32_t> ids(2);
  std::vector<float> weights(2), alone(2);
  select_experts(std::vector<float>{1, 3}, 1, ids, alone);
  select_experts(std::vector<float>{-1, nan, 1, 0.99f, 3, -INFINITY}, 1, ids, weights);
  EXPECT_THAT(ids, ElementsAre(4, 2));
  EXPECT_EQ(weights, alone);
}

}  // namespace
}  // namespace redlite::model
