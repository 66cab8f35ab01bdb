#include "cpu/mixer_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "cpu/kernels.h"

namespace redlite::cpu {
namespace {

std::vector<float> random_values(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

constexpr int kWidths[] = {1, 3, 8, 16, 20, 64, 100, 128, 256};  // vectors, tails and both

/// Every instruction set gives the bits of the scalar code.
class MixerKernelsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    kernels_ = find_mixer_kernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "no " << GetParam() << " on this processor";
  }
  const MixerKernels& tested() const { return *kernels_; }
  static constexpr const MixerKernels& plain = kScalarMixerKernels;

 private:
  const MixerKernels* kernels_ = nullptr;
};

struct Attended {
  std::vector<float> max, sum, o;
  Attended(int group, int dim)
      : max(static_cast<size_t>(group)), sum(max.size()), o(max.size() * static_cast<size_t>(dim)) {}
  AttendResult result() { return {max.data(), sum.data(), o.data()}; }
};

TEST_P(MixerKernelsTest, AttendAndMerge) {
  for (const int dim : {8, 20, 64, 256}) {
    for (const int group : {1, 2, 3, 8, 13}) {
      for (const int n : {1, 7, 16, 100, kAttendBlock}) {
        for (const bool f16 : {false, true}) {
          const int q_stride = 2 * dim;
          const size_t rows = static_cast<size_t>(n) * static_cast<size_t>(dim);
          const std::vector<float> q =
              random_values(static_cast<size_t>(group) * static_cast<size_t>(q_stride), 1);
          std::vector<float> k = random_values(rows, 2), v = random_values(rows, 3);
          std::vector<uint16_t> k16(rows), v16(rows);
          std::ranges::transform(k, k16.begin(), f32_to_f16);
          std::ranges::transform(v, v16.begin(), f32_to_f16);
          const AttendBlock block = {q.data(),
                                     q_stride,
                                     group,
                                     dim,
                                     f16 ? static_cast<void*>(k16.data()) : k.data(),
                                     f16 ? static_cast<void*>(v16.data()) : v.data(),
                                     f16,
                                     n};
          const std::string what = "dim " + std::to_string(dim) + " group " + std::to_string(group) + " n " +
                                   std::to_string(n) + (f16 ? " f16" : "");
          Attended expected(group, dim), actual(group, dim);
          plain.attend(block, expected.result());
          tested().attend(block, actual.result());
          EXPECT_EQ(actual.max, expected.max) << what;
          EXPECT_EQ(actual.sum, expected.sum) << what;
          EXPECT_EQ(actual.o, expected.o) << what;

          Attended more(group, dim);
          AttendBlock other = block;
          other.q = block.q + dim;
          plain.attend(other, more.result());
          actual = expected;
          plain.merge(expected.result(), more.result(), group, dim);
          tested().merge(actual.result(), more.result(), group, dim);
          EXPECT_EQ(actual.sum, expected.sum) << what;
          EXPECT_EQ(actual.o, expected.o) << what;
        }
      }
    }
  }
}

// Two blocks merged are what one pass over both is.
TEST_P(MixerKernelsTest, MergedBlocksAreOneSoftmax) {
  constexpr int kDim = 32, kGroup = 4, kCount = 90, kSplit = 37;
  const std::vector<float> q = random_values(kGroup * kDim, 1), k = random_values(kCount * kDim, 2),
                           v = random_values(kCount * kDim, 3);
  Attended whole(kGroup, kDim), first(kGroup, kDim), second(kGroup, kDim);
  tested().attend({q.data(), kDim, kGroup, kDim, k.data(), v.data(), false, kCount}, whole.result());
  tested().attend({q.data(), kDim, kGroup, kDim, k.data(), v.data(), false, kSplit}, first.result());
  tested().attend({q.data(), kDim, kGroup, kDim, k.data() + kSplit * kDim, v.data() + kSplit * kDim, false,
                   kCount - kSplit},
                  second.result());
  tested().merge(first.result(), second.result(), kGroup, kDim);
  for (size_t g = 0; g < kGroup; ++g) {
    for (size_t i = g * kDim; i < (g + 1) * kDim; ++i)
      ASSERT_NEAR(first.o[i] / first.sum[g], whole.o[i] / whole.sum[g], 2e-6f);
  }
}

/// Five tokens in calls of 1, 3 and 1.
TEST_P(MixerKernelsTest, DeltaRule) {
  constexpr int kTokens = 5;
  for (const int dim : kWidths) {
    const size_t n = static_cast<size_t>(dim);
    std::vector<float> expected_state = random_values(n * n, 4), actual_state = expected_state;
    const std::vector<float> q = random_values(kTokens * n, 5), k = random_values(kTokens * n, 6, 0.1f),
                             v = random_values(kTokens * n, 7), decay = {0.9f, 0.5f, 0.99f, 1, 0.7f},
                             beta = {0.7f, 0.1f, 0.5f, 0.9f, 0.3f};
    std::vector<float> expected(kTokens * n), actual(kTokens * n);
    const auto tokens = [&](int first, int count, std::vector<float>& o) {
      const size_t at = static_cast<size_t>(first) * n;
      return DeltaTokens{count,         q.data() + at,        k.data() + at,
                         v.data() + at, decay.data() + first, beta.data() + first,
                         o.data() + at};
    };
    plain.delta_rule(expected_state.data(), tokens(0, kTokens, expected), dim, nullptr);
    tested().delta_rule(actual_state.data(), tokens(0, 1, actual), dim, expected_state.data());
    tested().delta_rule(actual_state.data(), tokens(1, 3, actual), dim, nullptr);
    tested().delta_rule(actual_state.data(), tokens(4, 1, actual), dim, nullptr);
    EXPECT_EQ(actual, expected) << "o, dim " + std::to_string(dim);
    EXPECT_EQ(actual_state, expected_state) << "state, dim " + std::to_string(dim);
  }
}

TEST_P(MixerKernelsTest, Elementwise) {
  for (const int width : kWidths) {
    const size_t n = static_cast<size_t>(width);
    const std::string what = "width " + std::to_string(width);
    const std::vector<float> x = random_values(n, 8), gate = random_values(n, 9, 20),
                             weight = random_values(n, 10);
    std::vector<float> expected(n), actual(n);

    plain.gated_norm(x.data(), weight.data(), gate.data(), 1e-6f, width, expected.data());
    tested().gated_norm(x.data(), weight.data(), gate.data(), 1e-6f, width, actual.data());
    EXPECT_EQ(actual, expected) << "gated_norm, " + what;

    plain.gate(x.data(), 1.5f, gate.data(), width, expected.data());
    tested().gate(x.data(), 1.5f, gate.data(), width, actual.data());
    EXPECT_EQ(actual, expected) << "gate, " + what;

    expected = actual = weight;
    plain.add_scaled(x.data(), 0.3f, width, expected.data());
    tested().add_scaled(x.data(), 0.3f, width, actual.data());
    EXPECT_EQ(actual, expected) << "add_scaled, " + what;

    expected = actual = x;
    plain.l2_normalize(expected.data(), width, 1e-6f, 0.25f);
    tested().l2_normalize(actual.data(), width, 1e-6f, 0.25f);
    EXPECT_EQ(actual, expected) << "l2_normalize, " + what;

    const std::vector<float> w = random_values(4 * (n + 5), 11);
    const float* inputs[4] = {x.data(), gate.data(), weight.data(), x.data()};
    plain.conv_silu(inputs, w.data(), width + 5, 4, width, expected.data());
    tested().conv_silu(inputs, w.data(), width + 5, 4, width, actual.data());
    EXPECT_EQ(actual, expected) << "conv_silu, " + what;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MixerKernelsTest, ::testing::Values("scalar", "avx2", "avx512", "neon"),
                         [](const auto& param) { return std::string(param.param); });

// The runner takes both tables by one name.
TEST(MixerKernels, ThereAreSomeForAllKernels) {
  for (const std::string_view name : available_kernels())
    EXPECT_NE(find_mixer_kernels(name), nullptr) << name;
}

}  // namespace
}  // namespace redlite::cpu
