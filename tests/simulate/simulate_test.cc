#include "simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "cpu/cpu_runner.h"
#include "model/model.h"
#include "trace/recorder.h"

namespace redlite::simulate {
namespace {

using trace::Trace;

constexpr Speeds kSpeeds{20e9, 2e9};

/// The demo model has experts of two sizes. A prompt, a second chunk, and tokens one by one.
struct Traced {
  model::Model model{REDLITE_DEMO_MODEL};
  Trace trace;
  std::vector<model::Token> tokens;
};

/// What the engine does with the same tokens; with `recorder` it is recorded.
experts::CacheStats run_engine(const model::Model& model, std::span<const model::Token> tokens,
                               experts::CacheSize size, trace::Recorder* recorder = nullptr) {
  cpu::CpuOptions options;
  options.context = static_cast<int>(tokens.size());
  options.cache.size = size;
  options.cache.prefetch = false;
  cpu::CpuRunner runner(model, options);
  if (recorder != nullptr) runner.set_tap(recorder->tap());
  runner.forward(tokens.first(60), model::LogitsFor::None);
  runner.forward(tokens.subspan(60, 5), model::LogitsFor::None);
  for (size_t i = 65; i < tokens.size(); ++i) runner.forward(tokens.subspan(i, 1), model::LogitsFor::None);
  return runner.cache_stats();
}

const Traced& traced() {
  static const Traced* const made = [] {
    auto* t = new Traced;
    std::mt19937 random(5);
    for (int i = 0; i < 160; ++i) t->tokens.push_back(static_cast<model::Token>(random() % 4000));
    trace::Recorder recorder(t->model);
    run_engine(t->model, t->tokens, {}, &recorder);
    t->trace = recorder.finish(t->tokens);
    return t;
  }();
  return *made;
}

TEST(Simulate, CountsWhatTheEngineCounts) {
  const Traced& t = traced();
  const uint64_t least = experts::ExpertCache::minimum_bytes(t.model);
  const uint64_t full = experts::ExpertCache::full_bytes(t.model);
  // From waves of four experts, which need all of their class, to a cache that evicts nothing.
  for (const uint64_t bytes : {least, least * 2, full / 4, full / 3, full / 2, full * 9 / 10, full}) {
    const experts::CacheStats engine =
        run_engine(t.model, t.tokens, {experts::CacheSize::Kind::Bounded, bytes});
    const experts::CacheStats simulated = simulate(t.trace, {.cache_bytes = bytes}, kSpeeds).stats;
    EXPECT_EQ(simulated.misses, engine.misses) << bytes;
    EXPECT_EQ(simulated.hits, engine.hits) << bytes;
    EXPECT_GT(simulated.misses, 0u);
  }
}

TEST(Simulate, SizeClassesAreTheEngines) {
  const Traced& t = traced();
  const experts::SizeClasses engine = experts::size_classes(experts::expert_files(t.model));
  const experts::SizeClasses simulated = size_classes(t.trace, Slots::BySize);
  EXPECT_EQ(simulated.class_of_layer, engine.class_of_layer);
  EXPECT_EQ(simulated.triplet_bytes, engine.triplet_bytes);
  ASSERT_EQ(simulated.classes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(simulated.classes[i].slot_bytes, engine.classes[i].slot_bytes);
    EXPECT_EQ(simulated.classes[i].n_slots, engine.classes[i].n_slots);
  }
  const experts::SizeClasses uniform = size_classes(t.trace, Slots::Uniform);
  ASSERT_EQ(uniform.classes.size(), 1u);
  EXPECT_EQ(uniform.classes[0].slot_bytes,
            std::max(engine.classes[0].slot_bytes, engine.classes[1].slot_bytes));
  EXPECT_EQ(uniform.classes[0].n_slots, engine.classes[0].n_slots + engine.classes[1].n_slots);
}

TEST(Simulate, NobodyBeatsTheClairvoyant) {
  const Traced& t = traced();
  for (const uint64_t eighths : {2, 4, 6}) {
    simulate::Setup setup{.cache_bytes = experts::ExpertCache::full_bytes(t.model) * eighths / 8};
    setup.policy = Policy::Clairvoyant;
    const Result best = simulate(t.trace, setup, kSpeeds);
    for (const Policy policy : {Policy::Lru, Policy::SegmentedLru, Policy::Frequency}) {
      setup.policy = policy;
      const Result other = simulate(t.trace, setup, kSpeeds);
      EXPECT_LT(best.stats.misses, other.stats.misses) << name_of(policy);
      EXPECT_EQ(other.stats.misses + other.stats.hits, best.stats.misses + best.stats.hits);
    }
  }
}

TEST(Simulate, PredictorsLoadAhead) {
  const Traced& t = traced();
  simulate::Setup setup{.cache_bytes = experts::ExpertCache::full_bytes(t.model) / 2};
  const Result none = simulate(t.trace, setup, kSpeeds);
  EXPECT_EQ(none.stats.prefetched, 0u);
  EXPECT_EQ(none.tokens, 72u) << "of 95 decoded ones, the first quarter warms up";
  setup.predictor = Predictor::Router;
  const Result router = simulate(t.trace, setup, kSpeeds);
  setup.predictor = Predictor::Perfect;
  const Result perfect = simulate(t.trace, setup, {20e9, 1e15});
  EXPECT_LT(router.misses, none.misses);
  EXPECT_LT(router.seconds, none.seconds);
  EXPECT_GT(router.loads, none.loads * 0.99);
  // With a disk without delay only the first layer, for which nothing is predicted, still misses.
  EXPECT_EQ(perfect.stats.prefetch_late, 0u);
  EXPECT_LT(perfect.misses, 4.0);
  for (const Result& r : {none, router, perfect}) {
    const experts::CacheStats& s = r.stats;
    EXPECT_EQ(s.hits + s.misses + s.prefetch_late, none.stats.hits + none.stats.misses);
    EXPECT_EQ(s.prefetched, s.prefetch_useful + s.prefetch_late + s.prefetch_wasted);
    EXPECT_LE(s.prefetch_useful + s.prefetch_late, s.prefetched);
  }
}

/// Two layers, every token the same two experts of each, then two others: all by hand.
TEST(Simulate, TimeIsWhatMemoryAndDiskTake) {
  Trace t;
  t.n_layers = 2;
  t.n_experts = 4;
  t.n_used = 2;
  t.dense_bytes = 8000;
  t.layers = {{1000, 4096}, {1000, 4096}};
  t.tokens = {0, 0, 0, 0};
  t.chunks = {1, 1, 1, 1};
  t.selected = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 0, 1};
  // The first token warms up. The second and third hit everything: 8000 dense bytes and 4 experts.
  // The fourth misses two in layer 0; nothing hides the disk, which has them after 10 and 20 seconds, and the
  // last one is computed after that.
  const Result r = simulate(t, {.cache_bytes = 8 * 4096}, {1000, 100});
  EXPECT_EQ(r.tokens, 3u);
  EXPECT_NEAR(r.seconds * 3, 12 + 12 + (8 + 20 + 1 + 2), 1e-9);
  EXPECT_NEAR(r.misses, 2.0 / 3, 1e-9);
  EXPECT_NEAR(r.bytes_read, 2000.0 / 3, 1e-9);
  EXPECT_NEAR(r.stats.stall_seconds, 2 * (20 - 1) + (20 - 1), 1e-9);
}

TEST(Simulate, TooSmallACacheIsAnError) {
  const Traced& t = traced();
  EXPECT_THROW(simulate(t.trace, {.cache_bytes = 4096}, kSpeeds), Error);
}

}  // namespace
}  // namespace redlite::simulate
