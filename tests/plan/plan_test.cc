#include "plan/plan.h"

#include <gmock/gmock.h>

#include "bench/workload.h"
#include "experts/cache.h"
#include "model/temporary_model.h"
#include "plan/probe.h"

namespace redlite::plan {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::DoubleNear;

// Fixed figures of a machine: what follows from them is arithmetic.
class Predict : public ::testing::Test {
 protected:
  Predict() {
    probes.least.part = 0.25;
    probes.least.token_seconds = 0.06;
    probes.least.hit_rate = 0.8;
    probes.least.prompt_token_seconds = 0.001;
    probes.least.expert_seconds = 50e-6;
    probes.least.miss_bytes_per_second = 1e12;
    probes.least.spread = 100;
    for (int i = 0; i <= 100; ++i) probes.least.misses.push_back(1 - i / 100.0);
    probes.most = probes.least;
    probes.most.part = 0.75;
    probes.most.token_seconds = 0.05;
    probes.most.hit_rate = 0.9;
    probes.most.expert_seconds = 30e-6;
    probes.mapped = probes.most;
    probes.mapped->token_seconds = 0.04;
    probes.mapped->expert_seconds = 20e-6;
  }
  Choice predicted(std::optional<uint64_t> cache_mib, int n_prompt) const {
    Choice choice;
    choice.cache_mib = cache_mib;
    choice.cache = cache_mib ? *cache_mib << 20 : shape.full_bytes;
    predict(shape, n_prompt, probes, choice);
    return choice;
  }

  // 10 layers of 100 experts of 1 MiB, 10 of them used.
  Shape shape{10, 100, 10, 1 << 20, uint64_t{1000} << 20};
  Probes probes;
};

TEST_F(Predict, WhatIsMappedIsAsItsProbe) {
  const Choice full = predicted(std::nullopt, 512);
  EXPECT_EQ(full.hit_rate, 1);
  EXPECT_THAT(full.decode_tok_s, DoubleNear(25, 1e-9));
  // 512 tokens use all 1000 experts.
  EXPECT_THAT(512 / full.prefill_tok_s, DoubleNear(0.512 + 0.02, 1e-6));
}

TEST_F(Predict, ACacheIsBetweenTheProbesByItsMisses) {
  EXPECT_THAT(predicted(250, 512).decode_tok_s, DoubleNear(1 / 0.06, 1e-6));
  EXPECT_THAT(predicted(750, 512).decode_tok_s, DoubleNear(1 / 0.05, 1e-6));
  const Choice half = predicted(500, 512);
  EXPECT_THAT(half.hit_rate, DoubleNear(0.85, 1e-9));
  EXPECT_THAT(half.decode_tok_s, DoubleNear(1 / 0.055, 1e-6));
  EXPECT_THAT(512 / half.prefill_tok_s, DoubleNear(0.512 + 0.04, 1e-6));
  // Half of the size, but four fifths of the misses that the least has more than the largest.
  probes.least.misses.assign(101, 0.4);
  probes.least.misses[25] = 0.6;
  probes.least.misses[50] = 0.56;
  EXPECT_THAT(predicted(500, 512).hit_rate, DoubleNear(0.82, 1e-9));
  EXPECT_THAT(predicted(500, 512).decode_tok_s, DoubleNear(1 / 0.058, 1e-6));
}

TEST_F(Predict, OneProbeIsEnoughForOneSize) {
  probes.most = probes.least;
  probes.mapped.reset();
  EXPECT_THAT(predicted(250, 512).decode_tok_s, DoubleNear(1 / 0.06, 1e-6));
  EXPECT_THAT(512 / predicted(250, 512).prefill_tok_s, DoubleNear(0.512 + 0.05, 1e-6));
}

TEST_F(Predict, APromptWaitsForTheDiskOnlyWhenThatTakesLonger) {
  probes.least.miss_bytes_per_second = 1e9;
  EXPECT_THAT(512 / predicted(500, 512).prefill_tok_s, DoubleNear(0.512 + 0.04, 1e-6))
      << "500 MiB are there in half a second, before the computation is done";
  probes.least.miss_bytes_per_second = 0.25e9;
  EXPECT_THAT(512 / predicted(500, 512).prefill_tok_s, DoubleNear(500 * 1048576 / 0.25e9, 1e-3));
}

TEST_F(Predict, EachChunkOfALongPromptReadsItsExperts) {
  EXPECT_THAT(4096 / predicted(std::nullopt, 4096).prefill_tok_s, DoubleNear(4.096 + 2 * 0.02, 1e-6));
}

// Hits need no clock: without prefetch they are those of the same cache at work with the same text.
TEST(ProbeCpu, ForetellsTheHitsOfACache) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  const uint64_t all = experts::ExpertCache::full_bytes(model);
  cpu::CpuOptions options;
  options.threads = 1;
  options.cache.prefetch = false;
  options.cache.io = experts::IoMode::Buffered;
  double last = 0;
  const Probe result = probe(model, options, all / 2, 16, 1e9, [&](double part) {
    EXPECT_GE(part, last);
    EXPECT_LE(part, 1);
    last = part;
  });
  EXPECT_EQ(result.part, 0.5);
  EXPECT_LT(result.hit_rate, 0.95) << "nothing to foretell";
  EXPECT_GT(result.misses[TinyModel::kExperts / 2], 0.05);
  EXPECT_GT(result.token_seconds, 0);
  EXPECT_GT(result.prompt_token_seconds + result.expert_seconds, 0);
  EXPECT_EQ(result.spread, TinyModel::kExperts) << "a long prompt uses all";

  const Probe mapped = probe(model, options, std::nullopt, 16, 1e9, {});
  EXPECT_EQ(mapped.part, 1);
  EXPECT_EQ(mapped.hit_rate, 1);
  EXPECT_EQ(mapped.misses, result.misses) << "the same text";

  options.context = 192;
  options.cache.size = {experts::CacheSize::Kind::Bounded, all / 2};
  cpu::CpuRunner runner(model, options);
  bench::Writer writer(TinyModel::kVocab);
  model::Token token = writer.first();
  uint64_t first_half = 0;
  for (int i = 0; i < 192; ++i) {
    if (i == 96) first_half = runner.cache_stats().hits;
    token = writer.next(runner.forward({&token, 1}, model::LogitsFor::Last));
  }
  const auto hits = static_cast<double>(runner.cache_stats().hits - first_half);
  EXPECT_NEAR(result.hit_rate, hits / (96 * TinyModel::kLayers * TinyModel::kExpertsUsed), 0.02);
}

}  // namespace
}  // namespace redlite::plan
