// Prompts in chunks whose experts are brought to the device: the same bits from everywhere, nothing read or
// copied that is not needed, and of decode's slots only the empty ones of the device change.

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "experts/test_files.h"
#include "gpu/gpu_runner.h"
#include "gpu/host_decode.h"
#include "model/temporary_model.h"

namespace redlite::gpu {
namespace {

using experts::CacheSize;
using experts::ExpertCache;
using experts::ExpertUse;
using experts::IoMode;
using model::LogitsFor;
using model::Stage;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;

constexpr uint64_t kExperts = uint64_t{TinyModel::kLayers} * TinyModel::kExperts;

class Prompts : public ::testing::Test {
 protected:
  /// 0 for `tier`: the mapped file.
  GpuOptions host(uint64_t cache, uint64_t tier, int streamed_from = 8) const {
    GpuOptions o;
    o.context = 64;
    o.batch = 16;
    o.streamed_from = streamed_from;
    o.experts.residency = Residency::host;
    o.experts.cache_bytes = cache;
    o.experts.host_tier = {tier == 0 ? CacheSize::Kind::Full : CacheSize::Kind::Bounded, tier};
    o.experts.host.io = IoMode::Buffered;
    return o;
  }
  /// Slots that the device manages, `slots` in each layer.
  GpuOptions device(int slots) const {
    GpuOptions o = host(0, 0);
    o.experts = {
        .residency = Residency::device,
        .cache_bytes =
            DeviceModel::expert_bytes(model) * static_cast<uint64_t>(slots) / TinyModel::kExperts + 1};
    return o;
  }
  std::unique_ptr<GpuRunner> open(const GpuOptions& options, uint64_t seed = 1) const {
    return std::make_unique<GpuRunner>(model, open_emulator({.seed = seed, .threads = 1}), options);
  }
  std::vector<float> forward(GpuRunner& runner, size_t first, size_t n) const {
    const std::span<const float> logits = runner.forward(std::span(tokens).subspan(first, n), LogitsFor::All);
    return {logits.begin(), logits.end()};
  }
  /// Two tokens one by one, a chunk of 12, a token, a chunk of 5, a token.
  std::vector<float> mixed(GpuRunner& runner) const {
    std::vector<float> out;
    size_t first = 0;
    for (const size_t n : {1, 1, 12, 1, 5, 1}) {
      const std::vector<float> logits = forward(runner, first, n);
      out.insert(out.end(), logits.begin(), logits.end());
      first += n;
    }
    return out;
  }
  /// Bytes read by a chunk of the first n tokens.
  uint64_t read_by(GpuRunner& runner, size_t n) const {
    runner.reset();
    const uint64_t before = runner.host_decode()->tier_statistics().bytes_read;
    forward(runner, 0, n);
    return runner.host_decode()->tier_statistics().bytes_read - before;
  }

  /// Bytes that a chunk of the tokens [first, first + n) takes from host memory.
  uint64_t copied_by(GpuRunner& runner, size_t first, size_t n) const {
    const uint64_t before = runner.prompt_bytes();
    forward(runner, first, n);
    return runner.prompt_bytes() - before;
  }
  static uint64_t resident(const GpuRunner& runner) {
    uint64_t n = 0;
    for (const ExpertUse& use : runner.expert_uses()) n += use.resident ? 1 : 0;
    return n;
  }

  experts::Watchdog watchdog{250};
  TemporaryModel file{TinyModel("qwen3next").fuse_gate_up(1)};
  model::Model model{file.path()};
  std::vector<Token> tokens = some_tokens(21, TinyModel::kVocab);
  uint64_t least = HostDecode::least_cache_bytes(model), all = device_slot_classes(model).full_bytes();
  uint64_t least_tier = ExpertCache::minimum_bytes(model), full_tier = ExpertCache::full_bytes(model);
};

TEST_F(Prompts, SameBitsWhereverExpertsComeFrom) {
  const std::vector<float> expected = mixed(*open({.context = 64, .batch = 16}));
  uint64_t seed = 1;
  for (const uint64_t cache : {least, (least + all) / 2, all}) {
    for (const uint64_t tier : {uint64_t{0}, least_tier, 2 * least_tier, full_tier}) {
      GpuOptions options = host(cache, tier);
      const IoMode io = tier == 2 * least_tier && cache != all ? IoMode::Direct : IoMode::Buffered;
      options.experts.host.io = io;
      options.experts.host.prefetch = ++seed % 3 != 0;
      EXPECT_EQ(mixed(*open(options, seed)), expected)
          << "cache " << cache << ", tier " << tier << ", " << experts::io_mode_name(io) << " reads";
    }
  }
}

TEST_F(Prompts, SlotsAndCountersOfDecodeStayAsTheyAre) {
  for (const uint64_t tier : {uint64_t{0}, 2 * least_tier}) {
    for (const int streamed_from : {2, 64}) {
      const auto runner = open(host(2 * least, tier, streamed_from));
      for (size_t i = 0; i < 6; ++i) forward(*runner, i, 1);
      const auto cells = [&] {
        std::vector<uint32_t> out;
        for (const ExpertUse& use : runner->expert_uses())
          out.insert(out.end(), {use.hits, use.misses, use.prefetches, use.resident ? 1u : 0u});
        return out;
      };
      const std::vector<uint32_t> before = cells();
      const uint64_t loaded = runner->host_decode()->loaded_bytes();
      forward(*runner, 6, 10);
      EXPECT_EQ(cells(), before);
      EXPECT_EQ(runner->host_decode()->loaded_bytes(), loaded);
    }
  }
}

// Chunks meet slots that are empty, partly or entirely filled by tokens, and filled by chunks; tokens find
// what chunks left there.
TEST_F(Prompts, SameBitsFromSlotsOfTheDeviceWhoeverFilledThem) {
  const std::vector<std::vector<size_t>> orders = {
      {12, 1, 8}, {1, 12, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 8, 1}, {8, 8, 1, 1, 1}};
  uint64_t seed = 1;
  for (const std::vector<size_t>& order : orders) {
    const auto all_of = [&](GpuRunner& runner) {
      std::vector<float> out;
      size_t first = 0;
      for (const size_t n : order) {
        const std::vector<float> logits = forward(runner, first, n);
        out.insert(out.end(), logits.begin(), logits.end());
        first += n;
      }
      return out;
    };
    const std::vector<float> expected = all_of(*open({.context = 64, .batch = 16}));
    for (const int slots : {TinyModel::kExpertsUsed, 5, 2 * TinyModel::kExpertsUsed, TinyModel::kExperts}) {
      const auto runner = open(device(slots), ++seed);
      EXPECT_EQ(all_of(*runner), expected) << slots << " slots";
      runner->reset();
      EXPECT_EQ(all_of(*runner), expected) << slots << " slots, all filled";
    }
  }
}

TEST_F(Prompts, AChunkFillsTheDevicesEmptySlotsAndTheNextCopiesLess) {
  const uint64_t expert = model.expert_bytes() / kExperts;
  for (const int slots : {TinyModel::kExpertsUsed, 5, TinyModel::kExperts}) {
    for (const size_t one_by_one : {0, 1, 2}) {
      const auto runner = open(device(slots));
      for (size_t i = 0; i < one_by_one; ++i) forward(*runner, i, 1);
      const experts::CacheStats before = runner->cache_stats();
      const uint64_t there = resident(*runner),
                     full = uint64_t{TinyModel::kLayers} * static_cast<uint64_t>(slots);
      EXPECT_EQ(copied_by(*runner, one_by_one, 8), (kExperts - there) * expert);
      EXPECT_EQ(resident(*runner), full);
      EXPECT_EQ(copied_by(*runner, one_by_one, 8), (kExperts - full) * expert);
      const experts::CacheStats after = runner->cache_stats();
      EXPECT_EQ(after.hits, before.hits);
      EXPECT_EQ(after.misses, before.misses);
      EXPECT_EQ(after.prefetched, before.prefetched);
    }
  }
}

TEST_F(Prompts, TokensFindWhatAChunkLeftInTheDevicesSlots) {
  const auto runner = open(device(TinyModel::kExperts));
  forward(*runner, 0, 8);
  for (size_t i = 8; i < 12; ++i) forward(*runner, i, 1);
  EXPECT_EQ(runner->cache_stats().misses, 0u);
  EXPECT_GT(runner->cache_stats().hits, 0u);
}

TEST_F(Prompts, WhatTheHostHasInSlotsIsNotCopiedFromTheFile) {
  const auto runner = open(host(all, 0));
  EXPECT_EQ(copied_by(*runner, 0, 8), model.expert_bytes());
  for (size_t i = 8; i < 12; ++i) forward(*runner, i, 1);
  const uint64_t there = resident(*runner);
  EXPECT_GT(there, 0u);
  EXPECT_EQ(copied_by(*runner, 12, 8), (kExperts - there) * (model.expert_bytes() / kExperts));
  EXPECT_EQ(resident(*runner), there);
}

TEST_F(Prompts, AShortChunkReadsWhatItSelectsAndALongOneEverythingOnce) {
  const auto runner = open(host(least, full_tier));
  std::set<std::pair<int, float>> selected;
  runner->set_tap([&](Stage stage, int layer, int, int, std::span<const float> values) {
    if (stage != Stage::ExpertIds) return;
    for (const float id : values) selected.emplace(layer, id);
  });
  const uint64_t expert = model.expert_bytes() / kExperts;
  const uint64_t first = read_by(*runner, 2), chosen = selected.size() * expert;
  runner->set_tap({});
  EXPECT_EQ(first, chosen);
  EXPECT_LT(chosen, model.expert_bytes()) << "the test's tokens select everything";
  EXPECT_EQ(read_by(*runner, 2), 0u) << "host memory has them";
  EXPECT_EQ(read_by(*runner, 10), model.expert_bytes() - chosen);
  EXPECT_EQ(read_by(*runner, 10), 0u);
}

TEST_F(Prompts, WhatIsInSlotsIsNotReadAgain) {
  const auto runner = open(host(all, least_tier));
  for (int i = 0; i < 8; ++i) forward(*runner, static_cast<size_t>(i), 1);
  EXPECT_EQ(read_by(*runner, 7), 0u);
  uint64_t missing = 0;
  for (const ExpertUse& use : runner->expert_uses()) missing += use.resident ? 0 : 1;
  EXPECT_LE(read_by(*runner, 10), missing * (model.expert_bytes() / kExperts));
}

// Where host memory holds a part of the experts, one long prompt after another must not find that part gone.
TEST_F(Prompts, LongChunksLeaveAPartInHostMemory) {
  const auto runner = open(host(least, full_tier * 3 / 4));
  EXPECT_EQ(read_by(*runner, 10), model.expert_bytes());
  for (int i = 0; i < 3; ++i) EXPECT_LT(read_by(*runner, 10), model.expert_bytes() * 3 / 4);
}

TEST_F(Prompts, HostMemoryIsAsStated) {
  const uint64_t tier = full_tier / 2;
  const auto runner = open(host(least, tier));
  const MemoryUse before = runner->device().memory();
  EXPECT_LE(before.registered, tier);
  EXPECT_GT(before.registered, tier / 2);
  mixed(*runner);
  const MemoryUse& after = runner->device().memory();
  EXPECT_EQ(after.registered, before.registered);
  EXPECT_EQ(after.device, runner->device_use().total());
  EXPECT_LE(after.host - before.host, kExperts * 64) << "the records and the table of decode";
}

// Groups of more experts than host memory can hold at once come in several leases.
TEST(DemoPrompt, SameBitsFromAHostTierOfTheLeastSize) {
  const experts::Watchdog watchdog(250);
  const model::Model model(REDLITE_DEMO_MODEL);
  const std::vector<Token> tokens = some_tokens(3, model.config().n_vocab);
  const auto logits = [&](const GpuOptions& options) {
    GpuRunner runner(model, open_emulator({.threads = 1}), options);
    const std::span<const float> all = runner.forward(tokens, LogitsFor::All);
    return std::vector<float>(all.begin(), all.end());
  };
  GpuOptions options{.context = 16, .batch = 4};
  const std::vector<float> expected = logits(options);
  options.experts.residency = Residency::host;
  options.experts.cache_bytes = HostDecode::least_cache_bytes(model);
  options.experts.host_tier = {CacheSize::Kind::Bounded, ExpertCache::minimum_bytes(model)};
  for (const int streamed_from : {2, 4}) {
    options.streamed_from = streamed_from;
    EXPECT_EQ(logits(options), expected);
  }
}

// In groups of eight what is missing has gaps, and what a chunk keeps comes from all of them.
TEST(DemoPrompt, SameBitsWhereSomeOfAGroupAreInSlots) {
  const experts::Watchdog watchdog(250);
  const model::Model model(REDLITE_DEMO_MODEL);
  const std::vector<Token> tokens = some_tokens(9, model.config().n_vocab);
  const auto logits = [&](const GpuOptions& options) {
    GpuRunner runner(model, open_emulator({.threads = 1}), options);
    std::vector<float> out;
    size_t first = 0;
    for (const size_t n : {1, 1, 3, 1, 3}) {
      const std::span<const float> some = runner.forward(std::span(tokens).subspan(first, n), LogitsFor::All);
      out.insert(out.end(), some.begin(), some.end());
      first += n;
    }
    return out;
  };
  GpuOptions options{.context = 16, .batch = 4};
  const std::vector<float> expected = logits(options);
  options.streamed_from = 3;
  options.experts.cache_bytes = DeviceModel::expert_bytes(model) / 2;
  options.experts.host_tier = {CacheSize::Kind::Full, 0};
  for (const Residency residency : {Residency::device, Residency::host}) {
    options.experts.residency = residency;
    EXPECT_EQ(logits(options), expected) << residency_name(residency);
  }
}

}  // namespace
}  // namespace redlite::gpu
