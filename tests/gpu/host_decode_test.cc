// A cache that the host manages: the same bits in every mode, switches that do something, faults.

#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "experts/test_files.h"
#include "experts/test_readers.h"
#include "gpu/gpu_runner.h"
#include "gpu/host_decode.h"
#include "model/temporary_model.h"

namespace redlite::gpu {
namespace {

using experts::CacheSize;
using experts::Watchdog;
using model::LogitsFor;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kLayers = TinyModel::kLayers;

class HostDecodeTest : public ::testing::Test {
 protected:
  static constexpr size_t kTokens = 16, kPrompt = 5;
  static constexpr uint64_t kDecoded = kTokens - kPrompt;  ///< those that are not a chunk

  /// Bounded caches on both sides: the least on the device, `tier` bytes on the host (0: the mapped file).
  GpuOptions host(DecodeMode mode = DecodeMode::automatic, int lookahead = 0) const {
    GpuOptions o;
    o.context = 64;
    o.batch = 8;
    o.experts.residency = Residency::host;
    o.experts.cache_bytes = HostDecode::least_cache_bytes(model);
    o.experts.host_tier = {CacheSize::Kind::Full, 0};
    o.experts.host.decode = mode;
    o.experts.host.lookahead = lookahead;
    o.experts.host.io = experts::IoMode::Buffered;
    return o;
  }
  std::unique_ptr<GpuRunner> open(const GpuOptions& options, uint64_t seed = 1, int threads = 1) const {
    return std::make_unique<GpuRunner>(model, open_emulator({.seed = seed, .threads = threads}), options);
  }
  /// Logits of a prompt, then of tokens one by one.
  std::vector<float> logits(GpuRunner& runner) const {
    const std::span<const Token> all(tokens);
    const std::span<const float> prompt = runner.forward(all.first(kPrompt), LogitsFor::All);
    std::vector<float> result(prompt.begin(), prompt.end());
    for (const Token& token : all.subspan(kPrompt)) {
      const std::span<const float> one = runner.forward({&token, 1}, LogitsFor::Last);
      result.insert(result.end(), one.begin(), one.end());
    }
    return result;
  }
  HostWalkStatistics statistics(const GpuOptions& options, std::vector<float>* result = nullptr) const {
    const auto runner = open(options);
    const std::vector<float> values = logits(*runner);
    if (result != nullptr) *result = values;
    return runner->host_decode()->statistics();
  }

  Watchdog watchdog{250};
  TemporaryModel file{TinyModel("qwen3next")};
  model::Model model{file.path()};
  std::vector<Token> tokens = some_tokens(kTokens, TinyModel::kVocab);
  std::vector<float> expected = logits(*open({.context = 64, .batch = 8}));
};

TEST_F(HostDecodeTest, SameBitsInEveryMode) {
  const uint64_t least = HostDecode::least_cache_bytes(model), all = device_slot_classes(model).full_bytes();
  const uint64_t least_tier = experts::ExpertCache::minimum_bytes(model);
  uint64_t seed = 1;
  for (const uint64_t cache : {least, (least + all) / 2, all}) {
    for (const uint64_t tier : {uint64_t{0}, least_tier, 3 * least_tier}) {
      for (const auto& [mode, lookahead] : {std::pair{DecodeMode::sync, 0},
                                            {DecodeMode::routed, 2},
                                            {DecodeMode::routed, 99},
                                            {DecodeMode::automatic, 1},
                                            {DecodeMode::automatic, 3},
                                            {DecodeMode::automatic, 0}}) {
        GpuOptions options = host(mode, lookahead);
        options.experts.cache_bytes = cache;
        if (tier > 0) options.experts.host_tier = {CacheSize::Kind::Bounded, tier};
        options.experts.host.prefetch = ++seed % 3 != 0;
        options.concurrent = seed % 5 != 0;
        EXPECT_EQ(logits(*open(options, seed, 2)), expected)
            << "cache " << cache << ", tier " << tier << ", mode " << static_cast<int>(mode)
            << ", look-ahead " << lookahead;
      }
    }
  }
}

TEST_F(HostDecodeTest, CountersAddUp) {
  for (const DecodeMode mode : {DecodeMode::sync, DecodeMode::routed}) {
    const HostWalkStatistics s = statistics(host(mode, 3));
    EXPECT_EQ(s.tokens, kDecoded);
    EXPECT_EQ(s.hits + s.late + s.misses, kDecoded * kLayers * TinyModel::kExpertsUsed);
    EXPECT_GT(s.misses, 0u);
    EXPECT_LE(s.stops, kDecoded * kLayers);
    EXPECT_LE(s.prefetch_useful, s.prefetched);
  }
}

// Routers tell what the next layers need, which is read into host memory while the disk has nothing else to
// do; where host memory holds all experts there is nothing to read.
TEST_F(HostDecodeTest, ExpertsOfLaterLayersAreReadAhead) {
  GpuOptions options = host(DecodeMode::sync);
  options.experts.host_tier = {CacheSize::Kind::Bounded, 3 * experts::ExpertCache::minimum_bytes(model)};
  const auto tier = [&] {
    const auto runner = open(options);
    EXPECT_EQ(logits(*runner), expected);
    EXPECT_EQ(runner->host_decode()->predicted_layers(), options.experts.host.prefetch ? 3 : 0);
    return runner->host_decode()->tier_statistics();
  };
  const experts::CacheStats with = tier();
  EXPECT_GT(with.prefetched, 0u);
  EXPECT_GT(with.prefetch_useful + with.prefetch_late, 0u);
  options.experts.host.prefetch = false;
  EXPECT_EQ(tier().prefetched, 0u);
  EXPECT_EQ(open(host(DecodeMode::sync))->host_decode()->predicted_layers(), 1);
}

TEST_F(HostDecodeTest, EveryLoadIsCounted) {
  GpuOptions options = host(DecodeMode::sync);
  const auto runner = open(options);
  logits(*runner);
  const HostWalkStatistics s = runner->host_decode()->statistics();
  const uint64_t expert = model.expert_bytes() / (kLayers * TinyModel::kExperts);
  EXPECT_EQ(runner->host_decode()->loaded_bytes(), (s.misses + s.prefetched) * expert);
}

TEST_F(HostDecodeTest, LookaheadDecidesHowOftenTheHostIsAsked) {
  GpuOptions options = host();
  options.experts.cache_bytes = device_slot_classes(model).full_bytes();
  options.experts.host.prefetch = false;
  const auto windows = [&](DecodeMode mode, int lookahead) {
    options.experts.host.decode = mode;
    options.experts.host.lookahead = lookahead;
    const auto runner = open(options);
    logits(*runner);  // every expert comes in; after that nothing misses
    const HostWalkStatistics before = runner->host_decode()->statistics();
    runner->reset();
    EXPECT_EQ(logits(*runner), expected);
    const HostWalkStatistics after = runner->host_decode()->statistics();
    EXPECT_EQ(after.stops, before.stops);
    return (after.windows - before.windows) / kDecoded;
  };
  EXPECT_EQ(windows(DecodeMode::sync, 0), 4u);
  EXPECT_EQ(windows(DecodeMode::automatic, 1), 4u);
  EXPECT_EQ(windows(DecodeMode::automatic, 3), 2u);
  EXPECT_EQ(windows(DecodeMode::routed, 1), 2u) << "at least two layers";
  EXPECT_EQ(windows(DecodeMode::routed, 99), 1u);
}

TEST_F(HostDecodeTest, EarlyOutSkipsWhatWasSubmittedBehindAMiss) {
  EXPECT_EQ(statistics(host(DecodeMode::sync)).skipped_layers, 0u);
  const HostWalkStatistics s = statistics(host(DecodeMode::routed, 99));
  EXPECT_GT(s.skipped_layers, s.tokens);
}

TEST_F(HostDecodeTest, PrefetchLoadsAheadAndASwitchTurnsItOff) {
  GpuOptions options = host(DecodeMode::sync);
  options.experts.cache_bytes = 6 * HostDecode::least_cache_bytes(model);
  std::vector<float> with, without;
  const HostWalkStatistics on = statistics(options, &with);
  options.experts.host.prefetch = false;
  const HostWalkStatistics off = statistics(options, &without);
  EXPECT_EQ(with, without);
  EXPECT_GT(on.prefetched, 0u);
  EXPECT_GT(on.prefetch_useful, 0u);
  EXPECT_EQ(off.prefetched, 0u);
  EXPECT_EQ(off.late, 0u);
}

TEST_F(HostDecodeTest, TheTierKeepsWhatTheDeviceGivesAway) {
  const auto bytes_read = [&](uint64_t bytes) {
    GpuOptions options = host(DecodeMode::sync);
    options.experts.host_tier = {CacheSize::Kind::Bounded, bytes};
    const auto runner = open(options);
    EXPECT_EQ(logits(*runner), expected);
    return runner->host_decode()->tier_statistics().bytes_read;
  };
  const uint64_t least = experts::ExpertCache::minimum_bytes(model);
  const uint64_t all = bytes_read(experts::ExpertCache::full_bytes(model));
  EXPECT_LE(all, model.expert_bytes());
  EXPECT_GT(bytes_read(least), 2 * all);
}

TEST_F(HostDecodeTest, TapsAndProfilesSeeTheSameToken) {
  const auto taps = [&](const GpuOptions& options) {
    std::vector<float> all;
    const auto runner = open(options);
    runner->set_tap([&](model::Stage, int layer, int position, int, std::span<const float> values) {
      if (position < static_cast<int>(kPrompt)) return;  // before, chunks differ
      all.push_back(static_cast<float>(layer));
      all.insert(all.end(), values.begin(), values.end());
    });
    EXPECT_EQ(logits(*runner), expected);
    return all;
  };
  const std::vector<float> shown = taps({.context = 64, .batch = 8});
  EXPECT_EQ(taps(host(DecodeMode::routed, 99)), shown);
  EXPECT_EQ(taps(host()), shown) << "a measurement must not be seen";
  GpuOptions options = host();
  options.profile = true;
  const auto runner = open(options);
  EXPECT_EQ(logits(*runner), expected);
  ASSERT_NE(runner->profile(), nullptr);
  EXPECT_EQ(runner->profile()->stages().at("route").launches, static_cast<int>(kDecoded) * kLayers)
      << "without those beside";
  EXPECT_GT(runner->profile()->stages().at("load_experts").milliseconds, 0);
  EXPECT_EQ(open({})->profile(), nullptr);
}

TEST_F(HostDecodeTest, ConcurrentLaunchesAreASwitch) {
  GpuOptions options = host();
  EXPECT_GT(
      open(options)->early_starts() +
          [&] {
            const auto runner = open(options);
            logits(*runner);
            return runner->early_starts();
          }(),
      0u);
  options.concurrent = false;
  const auto runner = open(options);
  EXPECT_EQ(logits(*runner), expected);
  EXPECT_EQ(runner->early_starts(), 0u);
}

}  // namespace
}  // namespace redlite::gpu
