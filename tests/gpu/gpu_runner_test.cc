#include "gpu/gpu_runner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "model/temporary_model.h"
#include "reference/reference_runner.h"
#include "residencies.h"

namespace redlite::gpu {
namespace {

using model::LogitsFor;
using model::Stage;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Values of every stage, layer after layer.
using Taps = std::map<std::pair<int, Stage>, std::vector<float>>;

Taps taps_of(model::Runner& runner, std::span<const Token> tokens, size_t chunk) {
  Taps taps;
  runner.set_tap([&](Stage stage, int layer, int position, int width, std::span<const float> values) {
    std::vector<float>& all = taps[{layer, stage}];
    EXPECT_EQ(all.size(), static_cast<size_t>(position) * static_cast<size_t>(width)) << "out of order";
    all.insert(all.end(), values.begin(), values.end());
  });
  for (size_t i = 0; i < tokens.size(); i += chunk)
    runner.forward(tokens.subspan(i, std::min(chunk, tokens.size() - i)), LogitsFor::All);
  runner.set_tap({});
  return taps;
}

// With F32 weights nothing is rounded to 8 bits: every stage of every architecture and layout agrees with the
// double-precision reference up to single-precision rounding. A mistake is of the order of 1.
void compare(const TinyModel& tiny) {
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  const std::vector<Token> tokens = some_tokens(70, TinyModel::kVocab);  // two parts of positions
  reference::ReferenceRunner reference(model, 128);
  const Taps expected = taps_of(reference, tokens, tokens.size());
  GpuRunner runner(model, open_emulator({.threads = 1}), {.context = 128, .batch = 27});
  const Taps actual = taps_of(runner, tokens, 40);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [key, values] : expected) {
    const std::vector<float>& ours = actual.at(key);
    ASSERT_EQ(ours.size(), values.size());
    float largest = 0, error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      const float difference = std::abs(values[i] - ours[i]);
      error = difference <= error ? error : difference;  // NaN stays
    }
    const float bound = key.second == Stage::ExpertIds ? 0 : 1e-4f * largest;
    EXPECT_LE(error, bound) << "layer " << key.first << ", " << model::stage_name(key.second);
  }
}

TEST(GpuRunner, Qwen3Next) {
  compare(TinyModel("qwen3next"));
}
TEST(GpuRunner, Qwen35Moe) {
  compare(TinyModel("qwen35moe"));
}
TEST(GpuRunner, Qwen3Moe) {
  compare(TinyModel("qwen3moe"));
}
TEST(GpuRunner, OlderLayouts) {
  compare(TinyModel("qwen3next").use_ssm_in(0).use_ssm_in(2).fuse_gate_up(1).fuse_attention(3).tie_output());
}

/// Logits of a prompt in chunks of `batch`, then of tokens one by one, from the captured graph.
std::vector<float> run(const model::Model& model, const GpuOptions& options, const EmulatorOptions& emulator,
                       std::span<const Token> tokens, size_t n_prompt) {
  GpuRunner runner(model, open_emulator(emulator), options);
  const std::span<const float> prompt = runner.forward(tokens.first(n_prompt), LogitsFor::All);
  std::vector<float> logits(prompt.begin(), prompt.end());
  for (const Token& token : tokens.subspan(n_prompt)) {
    const std::span<const float> one = runner.forward({&token, 1}, LogitsFor::Last);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  return logits;
}

class Tiny : public ::testing::Test {
 protected:
  TemporaryModel file{TinyModel("qwen3next")};
  model::Model model{file.path()};
  std::vector<Token> tokens = some_tokens(68, TinyModel::kVocab);
};

TEST_F(Tiny, SameBitsForAnyChunksAndOrderOfBlocks) {
  tokens =
      some_tokens(140, TinyModel::kVocab);  // more than two tiles of tokens, and three parts of positions
  const std::vector<float> expected = run(model, {.batch = 130}, {.threads = 1}, tokens, tokens.size());
  for (const size_t n_prompt : {100, 138}) {
    EXPECT_EQ(run(model, {.batch = 9}, {.seed = n_prompt, .threads = 2}, tokens, n_prompt), expected)
        << "a prompt of " << n_prompt;
  }
}

TEST_F(Tiny, SameBitsForAnyCacheOfExperts) {
  tokens.resize(20);
  const std::vector<float> expected = run(model, {}, {.threads = 1}, tokens, 10);
  const uint64_t all = DeviceModel::expert_bytes(model), least = DeviceModel::least_cache_bytes(model);
  for (const uint64_t bytes : {all, all / 2, least}) {
    for (const int streamed_from : {8, 11}) {  // the prompt's 10 tokens at once, or one by one
      const GpuOptions options{.streamed_from = streamed_from,
                               .experts = {.residency = Residency::device, .cache_bytes = bytes}};
      EXPECT_EQ(run(model, options, {.seed = bytes, .threads = 2}, tokens, 10), expected)
          << bytes << " bytes";
    }
  }
}

// The order in which the loads beside and those in the token's own way come about is another one for each
// seed.
TEST_F(Tiny, SameBitsWhoeverBringsTheExperts) {
  tokens.resize(16);
  const std::vector<float> expected = run(model, {}, {.threads = 1}, tokens, 2);
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const GpuOptions options{
        .experts = {.residency = Residency::device,
                    .cache_bytes = (seed % 2 + 2) * DeviceModel::least_cache_bytes(model)}};
    EXPECT_EQ(run(model, options, {.seed = seed, .threads = 2}, tokens, 2), expected) << "seed " << seed;
  }
}

TEST_F(Tiny, CountsHitsAndMisses) {
  tokens.resize(12);
  const auto statistics = [&](uint64_t bytes) {
    GpuRunner runner(model, open_emulator({.threads = 1}),
                     {.experts = {.residency = Residency::device, .cache_bytes = bytes}});
    runner.forward(tokens, LogitsFor::None);
    return runner.slot_statistics();
  };
  const uint64_t selections = tokens.size() * TinyModel::kLayers * TinyModel::kExpertsUsed;
  const SlotStatistics all = statistics(DeviceModel::expert_bytes(model));
  EXPECT_EQ(all.hits + all.misses, selections);
  EXPECT_LE(all.misses, static_cast<uint64_t>(TinyModel::kLayers * TinyModel::kExperts))
      << "each is loaded once";
  const SlotStatistics least = statistics(DeviceModel::least_cache_bytes(model));
  EXPECT_EQ(least.hits + least.misses, selections);
  EXPECT_GT(least.misses, all.misses);
  EXPECT_EQ(least.bytes_copied, least.misses * DeviceModel::expert_bytes(model) /
                                    static_cast<uint64_t>(TinyModel::kLayers * TinyModel::kExperts));
  EXPECT_THAT([&] { statistics(DeviceModel::least_cache_bytes(model) - 1); },
              ThrowsMessage<Error>(HasSubstr("too small; the least for this model is --cache-mib")));
}

TEST_F(Tiny, TimesTheGraphsOfTokens) {
  GpuRunner runner(model, open_emulator({.threads = 1}), {.context = 64});
  const auto start = std::chrono::steady_clock::now();
  runner.forward(std::span(tokens).first(20), LogitsFor::Last);
  EXPECT_EQ(runner.graph_time().tokens, 0u) << "a prompt";
  for (size_t i = 20; i < 23; ++i) runner.forward(std::span(tokens).subspan(i, 1), LogitsFor::Last);
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const GpuRunner::GraphTime graphs = runner.graph_time();
  EXPECT_EQ(graphs.tokens, 3u);
  EXPECT_GT(graphs.seconds, 0);
  EXPECT_LT(graphs.seconds, all);
}

TEST_F(Tiny, TheDevicePrefetchesAndASwitchTurnsItOff) {
  const auto run_with = [&](bool prefetch, SlotStatistics& statistics) {
    GpuOptions options{.experts = {.residency = Residency::device,
                                   .cache_bytes = 2 * DeviceModel::least_cache_bytes(model)}};
    options.experts.host.prefetch = prefetch;
    GpuRunner runner(model, open_emulator({.threads = 1}), options);
    const std::span<const float> logits = runner.forward(std::span(tokens).first(20), LogitsFor::All);
    statistics = runner.slot_statistics();
    return std::vector<float>(logits.begin(), logits.end());
  };
  SlotStatistics on, off;
  EXPECT_EQ(run_with(true, on), run_with(false, off));
  EXPECT_GT(on.prefetched, 0u);
  EXPECT_LT(on.misses, off.misses);
  EXPECT_EQ(off.prefetched, 0u);
  EXPECT_EQ(on.hits + on.misses, off.hits + off.misses);
}

TEST_F(Tiny, HalfPrecisionKeysAndValues) {
  const std::vector<float> expected = run(model, {}, {.threads = 1}, tokens, 66);
  const std::vector<float> actual = run(model, {.half_kv = true}, {.threads = 1}, tokens, 66);
  EXPECT_NE(actual, expected) << "the switch does nothing";
  EXPECT_EQ(run(model, {.batch = 3, .half_kv = true}, {.threads = 1}, tokens, 7), actual)
      << "chunks change bits";
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 0.02) << i;
}

TEST_F(Tiny, MarksAndRewindsAndResets) {
  GpuRunner runner(model, open_emulator({.threads = 1}), {});
  const auto forward = [&](size_t first, size_t n) {
    const std::span<const float> logits =
        runner.forward(std::span(tokens).subspan(first, n), LogitsFor::Last);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> expected_begin = forward(0, 11);
  const auto mark = runner.mark();
  const std::vector<float> expected = forward(11, 20);
  forward(40, 3);
  runner.rewind(*mark);
  EXPECT_EQ(runner.position(), 11);
  EXPECT_EQ(forward(11, 20), expected);
  runner.reset();
  EXPECT_EQ(runner.position(), 0);
  EXPECT_EQ(forward(0, 11), expected_begin);
}

TEST_F(Tiny, TheBestTokenIsThatOfTheLogits) {
  tokens.resize(14);
  for (const ExpertChoice& experts : all_residencies(model)) {
    const GpuOptions options{.experts = experts};
    GpuRunner logits_of(model, open_emulator({.threads = 1}), options);
    GpuRunner best_of(model, open_emulator({.threads = 1}), options);
    const std::span<const Token> all(tokens);
    EXPECT_EQ(best_of.forward_best(all.first(5)),
              model::best_token(logits_of.forward(all.first(5), LogitsFor::Last)));
    for (const Token& token : all.subspan(5)) {
      const Token best = best_of.forward_best({&token, 1});
      EXPECT_EQ(best, model::best_token(logits_of.forward({&token, 1}, LogitsFor::Last)));
    }
    // Afterwards there are logits again.
    const Token next = 3;
    const std::span<const float> expected = logits_of.forward({&next, 1}, LogitsFor::Last);
    const std::span<const float> actual = best_of.forward({&next, 1}, LogitsFor::Last);
    EXPECT_TRUE(std::ranges::equal(actual, expected));
  }
}

TEST_F(Tiny, WhatBecameOfEachExpert) {
  tokens.resize(12);
  constexpr size_t kCells = size_t{TinyModel::kLayers} * TinyModel::kExperts;
  const uint64_t selections = tokens.size() * TinyModel::kLayers * TinyModel::kExpertsUsed;
  for (const ExpertChoice& choice : all_residencies(model)) {
    GpuRunner runner(model, open_emulator({.threads = 1}), {.experts = choice});
    EXPECT_EQ(runner.expert_uses().size(), kCells) << "before the first token";
    // What each token selected, from the tap.
    std::vector<uint32_t> selected(kCells);
    runner.set_tap([&](Stage stage, int layer, int, int, std::span<const float> values) {
      if (stage != Stage::ExpertIds) return;
      for (const float id : values)
        ++selected[static_cast<size_t>(layer * TinyModel::kExperts) + static_cast<size_t>(id)];
    });
    for (const Token& token : tokens) runner.forward({&token, 1}, LogitsFor::None);
    runner.set_tap({});
    const std::vector<experts::ExpertUse> uses = runner.expert_uses();
    ASSERT_EQ(uses.size(), kCells);
    uint64_t hits = 0, misses = 0, prefetches = 0, resident = 0;
    for (size_t i = 0; i < kCells; ++i) {
      EXPECT_EQ(uses[i].hits + uses[i].misses, selected[i]) << "cell " << i;
      hits += uses[i].hits;
      misses += uses[i].misses;
      prefetches += uses[i].prefetches;
      resident += uses[i].resident ? 1 : 0;
    }
    const experts::CacheStats sum = runner.cache_stats();
    EXPECT_EQ(hits + misses, selections);
    EXPECT_EQ(sum.hits, hits);
    EXPECT_EQ(sum.misses, misses);
    EXPECT_EQ(sum.prefetched, prefetches);
    if (choice.residency == Residency::full) {
      EXPECT_EQ(resident, kCells);
      EXPECT_EQ(misses + prefetches, 0u);
    } else {
      EXPECT_GT(misses, 0u);
      EXPECT_GT(resident, 0u);
      EXPECT_LE(resident, misses + prefetches) << "each was brought";
      EXPECT_LT(resident, kCells);
    }
  }
}

TEST_F(Tiny, BadRequestsChangeNothing) {
  GpuRunner runner(model, open_emulator({.threads = 1}), {.context = 8});
  runner.forward(std::span(tokens).first(5), LogitsFor::None);
  EXPECT_THAT([&] { runner.forward(std::span(tokens).first(5), LogitsFor::None); },
              ThrowsMessage<Error>(HasSubstr("do not fit into a context of 8")));
  const Token beyond = TinyModel::kVocab;
  EXPECT_THAT(
      [&] {
        runner.forward({&beyond, 1}, LogitsFor::None);
      },
      ThrowsMessage<Error>(HasSubstr("outside the vocabulary")));
  EXPECT_EQ(runner.position(), 5);
}

TEST_F(Tiny, TooLittleDeviceMemoryIsAnError) {
  EXPECT_THAT([&] { GpuRunner(model, open_emulator({.memory = 1 << 20}), {}); },
              ThrowsMessage<Error>(HasSubstr("MiB")));
}

// Quantised weights of many types: close to the reference, not equal.
TEST(GpuRunner, DemoModelIsCloseToTheReference) {
  const model::Model model(REDLITE_DEMO_MODEL);
  const std::vector<Token> tokens = some_tokens(8, model.config().n_vocab);
  reference::ReferenceRunner reference(model, 16);
  const std::span<const float> expected = reference.forward(tokens, LogitsFor::All);
  const std::vector<float> actual = run(model, {.context = 16}, {.threads = 1}, tokens, 6);
  double squares = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    squares += expected[i] * expected[i];
    difference += (expected[i] - actual[i]) * (expected[i] - actual[i]);
  }
  EXPECT_LT(std::sqrt(difference / squares), 0.05);
}

// Prompts add up products of quantised weights elsewhere than tokens one by one, in the same order.
TEST(GpuRunner, DemoModelHasTheSameBitsOneByOne) {
  const model::Model model(REDLITE_DEMO_MODEL);
  const std::vector<Token> tokens = some_tokens(8, model.config().n_vocab);
  const auto logits = [&](size_t n_prompt) {
    return run(model, {.context = 16}, {.threads = 1}, tokens, n_prompt);
  };
  EXPECT_EQ(logits(8), logits(1));
}

}  // namespace
}  // namespace redlite::gpu
