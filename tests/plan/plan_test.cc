#include "plan/plan.h"

#include <gmock/gmock.h>

#include "plan/probe.h"

namespace redlite::plan {
namespace {

using ::testing::DoubleNear;

// Fixed figures of a machine: what follows from them is arithmetic.
class Predict : public ::testing::Test {
 protected:
  Predict() {
    probe.token_seconds = 0.05;
    probe.prompt_token_seconds = 0.001;
    probe.expert_seconds = 20e-6;
    probe.expert_token_seconds = 5e-6;
    probe.miss_seconds = 100e-6;
    probe.miss_bytes_per_second = 1e9;
    probe.spread = 100;
    probe.misses.assign(101, 0.2);
  }
  Choice predicted(std::optional<uint64_t> cache_mib, int n_prompt) const {
    Choice choice;
    choice.cache_mib = cache_mib;
    choice.cache = cache_mib ? *cache_mib << 20 : shape.full_bytes;
    predict(shape, n_prompt, probe, choice);
    return choice;
  }

  // 10 layers of 100 experts of 1 MiB, 10 of them used.
  Shape shape{10, 100, 10, 1 << 20, uint64_t{1000} << 20};
  Probe probe;
};

TEST_F(Predict, WhatIsResidentDoesNotWait) {
  const Choice full = predicted(std::nullopt, 512);
  EXPECT_EQ(full.hit_rate, 1);
  EXPECT_THAT(full.decode_tok_s, DoubleNear(20, 1e-9));
  // 512 tokens use all 1000 experts: dense work, experts' weights once, 51,200 selections.
  EXPECT_THAT(512 / full.prefill_tok_s, DoubleNear(0.512 + 0.02 + 0.256, 1e-6));
}

TEST_F(Predict, MissesAddTheirTime) {
  const Choice half = predicted(500, 512);
  EXPECT_THAT(half.hit_rate, DoubleNear(0.8, 1e-9));
  EXPECT_THAT(half.decode_tok_s, DoubleNear(1 / (0.05 + 20 * 100e-6), 1e-6));
}

TEST_F(Predict, APromptWaitsForTheDiskOnlyWhenThatTakesLonger) {
  EXPECT_THAT(predicted(500, 512).prefill_tok_s, DoubleNear(predicted(std::nullopt, 512).prefill_tok_s, 1e-6))
      << "500 MiB are there in half a second, before the computation is done";
  probe.miss_bytes_per_second = 0.25e9;
  EXPECT_THAT(512 / predicted(500, 512).prefill_tok_s, DoubleNear(500 * 1048576 / 0.25e9, 1e-3));
}

}  // namespace
}  // namespace redlite::plan
