#include "reference/math.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

namespace redlite::reference {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(Math, Softplus) {
  EXPECT_DOUBLE_EQ(softplus(0), std::log(2.0));
  EXPECT_DOUBLE_EQ(softplus(1), std::log(1 + std::exp(1.0)));
  EXPECT_DOUBLE_EQ(softplus(1000), 1000);
  EXPECT_DOUBLE_EQ(softplus(-50), std::exp(-50.0));
}

TEST(Math, Silu) {
  EXPECT_DOUBLE_EQ(silu(0), 0);
  EXPECT_DOUBLE_EQ(silu(std::log(3.0)), std::log(3.0) * 0.75);
  EXPECT_DOUBLE_EQ(silu(-1000), 0);
}

TEST(Math, RmsNorm) {
  const std::vector<float> weight = {1, 2};
  // mean(x^2) = 12.5; 12.5 + 3.5 = 16
  EXPECT_THAT(rms_norm(Vec{3, 4}, weight, 3.5), ElementsAre(DoubleEq(0.75), DoubleEq(2)));
}

TEST(Math, L2Normalize) {
  Vec x = {3, 4};
  l2_normalize(x, 0);
  EXPECT_THAT(x, ElementsAre(DoubleEq(0.6), DoubleEq(0.8)));
  x = {0, 3};
  l2_normalize(x, 16);  // eps is added to the sum, not to the mean
  EXPECT_THAT(x, ElementsAre(DoubleEq(0), DoubleEq(0.6)));
}

TEST(Math, SoftmaxOfLargeValues) {
  Vec x = {1000, 1000 + std::log(3.0)};
  softmax(x);
  EXPECT_THAT(x, ElementsAre(DoubleNear(0.25, 1e-12), DoubleNear(0.75, 1e-12)));
}

TEST(Math, RopeTurnsPairsHalfTheDimensionsApart) {
  const double quarter = std::numbers::pi / 2;
  // Four rotated values of six: pair (0, 2) turns by the position, (1, 3) by position * base^(-1/2).
  Vec x = {1, 1, 0, 0, 7, 8};
  const double base = 1 / (quarter * quarter);  // base^(-1/2) is a quarter turn
  rope(x, 4, base, 1);
  EXPECT_THAT(x, Pointwise(DoubleNear(1e-12), Vec{std::cos(1.0), 0, std::sin(1.0), 1, 7, 8}));
  Vec y = {3, 4, 5, 6};
  rope(y, 4, 10000, 0);
  EXPECT_THAT(y, ElementsAre(3, 4, 5, 6));
}

TEST(Math, RopeKeepsAnglesBetweenEqualDistances) {
  const Vec q = {0.3, -1.2, 0.7, 2}, k = {1.5, 0.2, -0.4, 0.9};
  const auto score = [&](int q_position, int k_position) {
    Vec a = q, b = k;
    rope(a, 4, 10000, q_position);
    rope(b, 4, 10000, k_position);
    return dot(a, b);
  };
  EXPECT_NEAR(score(5, 2), score(105, 102), 1e-12);
  EXPECT_GT(std::abs(score(5, 2) - score(2, 5)), 0.01);  // and the direction matters
}

TEST(Math, DeltaStepByHand) {
  Vec state = {1, 2,   // k[0] -> v
               3, 4};  // k[1] -> v
  const Vec q = {1, 10}, k = {0.5, -1}, v = {7, 9};
  // Faded by half: {0.5, 1}, {1.5, 2}. It answers k with {0.25 - 1.5, 0.5 - 2} = {-1.25, -1.5}; the change is
  // 0.8 * (v - that) = {6.6, 8.4}; k outer change = {3.3, 4.2}, {-6.6, -8.4}.
  const Vec o = delta_step(state, q, k, v, 0.5, 0.8);
  EXPECT_THAT(state, Pointwise(DoubleNear(1e-12), Vec{3.8, 5.2, -5.1, -6.4}));
  EXPECT_THAT(o, Pointwise(DoubleNear(1e-12), Vec{3.8 - 51, 5.2 - 64}));
}

// The same as the paper's closed form: S' = decay * (I - beta k k') S + beta k v'.
TEST(Math, DeltaStepIsThePapersForm) {
  Vec state = {0.3, -0.7, 1.1, 0.2, 0.5, -0.9};  // d_k = 2, d_v = 3
  const Vec before = state, k = {0.6, -0.8}, v = {1, 2, 3};
  const double decay = 0.9, beta = 0.7;
  delta_step(state, Vec{1, 0}, k, v, decay, beta);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j) {
      double expected = beta * k[i] * v[j];
      for (size_t m = 0; m < 2; ++m)
        expected += decay * ((i == m ? 1 : 0) - beta * k[i] * k[m]) * before[m * 3 + j];
      EXPECT_NEAR(state[i * 3 + j], expected, 1e-12);
    }
}

}  // namespace
}  // namespace redlite::reference
