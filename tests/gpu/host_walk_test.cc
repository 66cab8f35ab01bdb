// The decisions of the host with a GPU made of nothing but rules, in every order in which its work can come
// about: no kernel ever meets a slot that is being filled, or another expert than the router selected.

#include "gpu/host_walk.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "base/error.h"
#include "experts/reader.h"
#include "experts/test_files.h"
#include "experts/two_tiers.h"

namespace redlite::gpu {
namespace {

using experts::ExpertKey;
using experts::TestFiles;

/// Decides what a run leaves open. next(n) is 0 to n - 1.
class Choices {
 public:
  virtual ~Choices() = default;
  virtual int next(int n) = 0;
};

/// Every sequence of choices, one after another: a run, then advance(), until that is false.
class AllChoices final : public Choices {
 public:
  int next(int n) override {
    if (n == 1) return 0;
    if (at_ == made_.size()) made_.push_back({0, n});
    return made_[at_++].choice;
  }
  bool advance() {
    at_ = 0;
    while (!made_.empty() && made_.back().choice + 1 == made_.back().of) made_.pop_back();
    if (made_.empty()) return false;
    ++made_.back().choice;
    return true;
  }

 private:
  struct Choice {
    int choice, of;
  };
  std::vector<Choice> made_;
  size_t at_ = 0;
};

class RandomChoices final : public Choices {
 public:
  explicit RandomChoices(uint32_t seed) : random_(seed) {}
  int next(int n) override { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

 private:
  std::mt19937 random_;
};

/// Two streams whose steps are taken when the choices say so. What kernels do is reduced to what they read
/// and write of the slots, the table, the flag and the records; loads and the experts' kernels take time:
/// they have a beginning and an end.
class RuleGpu final : public HostGpu {
 public:
  /// Each router predicts so many layers.
  RuleGpu(const HostWalk::Sizes& sizes, const uint64_t* table, int n_slots, int ahead, Choices& choices)
      : sizes_(sizes),
        table_(table),
        choices_(choices),
        content_(static_cast<size_t>(n_slots)),
        readers_(content_.size()),
        records_(static_cast<size_t>(sizes.n_layers)),
        predictions_(records_.size() * static_cast<size_t>(ahead)),
        valid_(records_.size()),
        predicted_valid_(predictions_.size()),
        ahead_(ahead) {}

  void begin_token() {
    std::fill(valid_.begin(), valid_.end(), false);
    std::fill(predicted_valid_.begin(), predicted_valid_.end(), false);
    routers_.assign(records_.size(), 0);
    experts_.assign(records_.size(), 0);
  }
  /// Runs what was submitted to its end; the stream beside goes on when it likes.
  void end_token() {
    while (!main_.empty())
      if (!step_main()) step_beside();
    for (int l = 0; l < sizes_.n_layers; ++l) {
      RL_CHECK(routers_[static_cast<size_t>(l)] == 1, "the router of layer {} ran {} times", l,
               routers_[static_cast<size_t>(l)]);
      RL_CHECK(experts_[static_cast<size_t>(l)] == 1, "the experts of layer {} ran {} times", l,
               experts_[static_cast<size_t>(l)]);
    }
  }

  /// ... and that, too.
  void end_beside() {
    while (!beside_.empty()) step_beside();
  }
  ExpertKey content(int slot) const { return content_[static_cast<size_t>(slot)]; }

  void submit(int first, int last, bool predict) override {
    for (int s = first; s < last; ++s) {
      if (s == 0) {
        main_.push_back({Step::Embed});
      } else {
        main_.push_back({Step::Experts, s - 1});
      }
      if (s < sizes_.n_layers) main_.push_back({Step::Route, s});
      // The same kernel, which may say it a little later.
      for (int d = 1; predict && d <= ahead_ && s + d < sizes_.n_layers; ++d) {
        main_.push_back({Step::Predict, s + d});
        main_.back().distance = d;
      }
    }
  }
  // Called until there is an answer: something has to happen each time.
  const RouteRecord* routed(int layer) override {
    if (valid_[static_cast<size_t>(layer)]) return &records_[static_cast<size_t>(layer)];
    const bool both = !main_.empty() && !beside_.empty();
    const size_t prediction = index(layer, 1);
    const bool predicted_before = predicted_valid_[prediction];
    if (both ? choices_.next(2) == 0 : main_.empty()) {
      RL_CHECK(!beside_.empty(), "the host waits for nothing");
      step_beside();
    } else if (!step_main()) {
      step_beside();
    }
    // The router may have spoken as well before the prediction is heard.
    if (predicted_valid_[prediction] && !predicted_before && choices_.next(2) == 1) {
      while (!main_.empty() && !valid_[static_cast<size_t>(layer)] && step_main()) {
      }
    }
    return nullptr;
  }
  const RouteRecord* predicted(int layer, int distance) override {
    const size_t at = index(layer, distance);
    return predicted_valid_[at] ? &predictions_[at] : nullptr;
  }
  void load(int /*layer*/, std::span<const SlotLoad> loads) override {
    main_.push_back({Step::Load, 0, {loads.begin(), loads.end()}});
  }
  void resume(int layer, std::span<const SlotLoad> loads, std::span<const int32_t> slots) override {
    main_.push_back({Step::Load, 0, {loads.begin(), loads.end()}});
    main_.push_back({Step::Resume, layer, {}, {slots.begin(), slots.end()}});
  }
  void load_beside(int /*layer*/, std::span<const SlotLoad> loads) override {
    RL_CHECK(beside_.empty(), "two loads beside at a time");
    beside_.push_back({Step::Load, 0, {loads.begin(), loads.end()}});
  }
  bool beside_done() override { return beside_.empty(); }
  void wait_for_beside() override { main_.push_back({Step::Wait}); }

 private:
  struct Step {
    enum Kind { Embed, Experts, Route, Predict, Load, Resume, Wait } kind;
    int layer = 0;
    std::vector<SlotLoad> loads = {};
    std::vector<int32_t> slots = {};
    bool begun = false;
    int distance = 0;
  };
  static constexpr ExpertKey kLoading{-2, -2};

  size_t index(int layer, int distance) const {
    return static_cast<size_t>((distance - 1) * sizes_.n_layers + layer);
  }

  void choose(int32_t* ids) {
    const int first = choices_.next(sizes_.n_experts);
    for (int i = 0; i < sizes_.n_used; ++i) ids[i] = (first + i) % sizes_.n_experts;
  }

  /// False: it has to wait.
  bool step_main() {
    Step& s = main_.front();
    const auto layer = static_cast<size_t>(s.layer);
    switch (s.kind) {
      case Step::Embed:
        flag_ = false;
        break;
      case Step::Experts:
        if (!s.begun && flag_) break;
        if (!s.begun) {
          s.slots = slots_of_token_;
          for (size_t i = 0; i < s.slots.size(); ++i) {
            const ExpertKey& there = content_[static_cast<size_t>(s.slots[i])];
            RL_CHECK(there == (ExpertKey{s.layer, records_[layer].ids[i]}),
                     "layer {} finds layer {} expert {} in its slot", s.layer, there.layer, there.expert);
            ++readers_[static_cast<size_t>(s.slots[i])];
          }
          ++experts_[layer];
          s.begun = true;
          return true;
        }
        for (const int32_t slot : s.slots) --readers_[static_cast<size_t>(slot)];
        break;
      case Step::Route: {
        if (flag_) break;
        RouteRecord& record = records_[layer];
        choose(record.ids);
        slots_of_token_.clear();
        for (int i = 0; i < sizes_.n_used; ++i) {
          const uint64_t entry = table_[s.layer * sizes_.n_experts + record.ids[i]];
          record.entries[i] = entry;
          flag_ |= entry == 0;
          slots_of_token_.push_back(entry == 0 ? 0 : slot_of_entry(entry));
        }
        ++routers_[layer];
        valid_[layer] = true;
        break;
      }
      case Step::Predict:
        choose(predictions_[index(s.layer, s.distance)].ids);
        predicted_valid_[index(s.layer, s.distance)] = true;
        break;
      case Step::Load:
        if (!load_step(s)) return true;
        break;
      case Step::Resume:
        slots_of_token_ = s.slots;
        flag_ = false;
        break;
      case Step::Wait:
        if (!beside_.empty()) return false;
        break;
    }
    main_.pop_front();
    return true;
  }

  void step_beside() {
    if (load_step(beside_.front())) beside_.pop_front();
  }

  /// True: the load is over.
  bool load_step(Step& s) {
    for (const SlotLoad& load : s.loads) {
      ExpertKey& content = content_[static_cast<size_t>(load.slot)];
      RL_CHECK(readers_[static_cast<size_t>(load.slot)] == 0, "slot {} is filled while a kernel reads it",
               load.slot);
      RL_CHECK(s.begun == (content == kLoading), "slot {} is filled twice at a time", load.slot);
      content = s.begun ? load.key : kLoading;
    }
    return std::exchange(s.begun, true);
  }

  HostWalk::Sizes sizes_;
  const uint64_t* table_;
  Choices& choices_;
  std::vector<ExpertKey> content_;  ///< [slot]
  std::vector<int> readers_;        ///< [slot], kernels that read it now
  std::vector<RouteRecord> records_, predictions_;
  std::vector<bool> valid_, predicted_valid_;
  std::vector<int> routers_, experts_;
  std::vector<int32_t> slots_of_token_;
  bool flag_ = false;
  int ahead_;
  std::deque<Step> main_, beside_;
};

struct Setting {
  HostWalk::Sizes sizes;
  int n_slots;
  int window;
  int n_tokens;
  int ahead = 1;            ///< layers that each router predicts
  uint64_t tier_bytes = 0;  ///< of a bounded tier in host memory; 0: the mapped files
};

HostWalkStatistics run(const TestFiles& files, const Setting& setting, Choices& choices) {
  const std::vector<int> classes(static_cast<size_t>(setting.sizes.n_layers), 0);
  const experts::TwoTiers tiers(classes, setting.sizes.n_experts, setting.sizes.n_used);
  const bool bounded = setting.tier_bytes > 0;
  const auto order = [&](auto of_tiers) -> std::unique_ptr<experts::EvictionOrder> {
    if (bounded) return of_tiers();
    return std::make_unique<experts::LeastRecentlyUsed>();
  };
  experts::ExpertPool pool(classes, setting.sizes.n_experts, {{4096, setting.n_slots}},
                           order([&] { return tiers.near_order(); }));
  // All of one size, as in the pool.
  experts::ExpertFiles one_size = files.files();
  std::vector<model::ExpertLayer> layers;
  for (int l = 0; l < setting.sizes.n_layers; ++l) layers.push_back(one_size.layers[l % 2 == 0 ? 0 : 2]);
  one_size.layers = layers;
  one_size.n_experts = setting.sizes.n_experts;
  one_size.n_experts_used = setting.sizes.n_used;
  experts::CacheOptions options;
  if (bounded) options.size = {experts::CacheSize::Kind::Bounded, setting.tier_bytes};
  options.io = experts::IoMode::Buffered;
  experts::ExpertCache source(one_size, options, nullptr, order([&] { return tiers.far_order(); }));
  std::vector<uint64_t> table(static_cast<size_t>(setting.sizes.n_layers) *
                              static_cast<size_t>(setting.sizes.n_experts));
  HostWalk walk(setting.sizes, pool, source, table.data(), {setting.window, setting.window, {}},
                setting.ahead);
  RuleGpu gpu(setting.sizes, table.data(), setting.n_slots, setting.ahead, choices);
  for (int i = 0; i < setting.n_tokens; ++i) {
    gpu.begin_token();
    walk.token(gpu, setting.window);
    gpu.end_token();
    walk.finish();
    // Between tokens a chunk of a prompt may use what lies in the slots.
    if (i % 3 != 1) continue;
    gpu.end_beside();
    walk.pause();
    for (int slot = 0; slot < setting.n_slots; ++slot) {
      RL_CHECK(pool.pins(slot) == 0, "slot {} is pinned during a pause", slot);
      const ExpertKey key = pool.key_of(slot);
      if (key.layer < 0) continue;
      const uint64_t entry = table[static_cast<size_t>(key.layer * setting.sizes.n_experts + key.expert)];
      RL_CHECK(gpu.content(slot) == key && entry != 0 && slot_of_entry(entry) == slot,
               "slot {} is not what it is said to be", slot);
    }
  }
  walk.abandon();
  return walk.statistics();
}

// Two tokens of a tiny model: every selection, every prediction, every order of the streams.
TEST(HostWalk, EveryOrderOfEventsIsSafe) {
  const TestFiles files(::testing::TempDir());
  int64_t runs = 0, stops = 0, late = 0, prefetched = 0, refused = 0, skipped = 0;
  const auto all = [&](const Setting& setting) {
    AllChoices choices;
    do {
      const HostWalkStatistics s = run(files, setting, choices);
      ++runs;
      stops += static_cast<int64_t>(s.stops);
      late += static_cast<int64_t>(s.late);
      prefetched += static_cast<int64_t>(s.prefetched);
      refused += static_cast<int64_t>(s.prefetch_refused);
      skipped += static_cast<int64_t>(s.skipped_layers);
    } while (choices.advance());
  };
  for (const int n_slots : {1, 2, 3}) {
    all({{2, 2, 1}, n_slots, 1, 2});
    // No prediction where layers are submitted ahead, so there is less that can happen in more layers.
    for (const int window : {2, 3, 4}) all({{3, 3, 1}, n_slots, window, 2});
    for (const int window : {2, 3}) all({{2, 3, 2}, n_slots + 1, window, 3});
  }
  // The interesting things do happen.
  EXPECT_GT(runs, 10000);
  EXPECT_GT(stops, runs);
  EXPECT_GT(late, 1000);
  EXPECT_GT(prefetched, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(skipped, 1000);
}

// Larger ones by chance.
TEST(HostWalk, LongRandomRunsAreSafe) {
  const TestFiles files(::testing::TempDir(), 2);
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    RandomChoices choices(seed);
    const int n_slots = 3 + static_cast<int>(seed % 12), window = 1 + static_cast<int>(seed % 5);
    run(files, {{4, 6, 3}, n_slots, window, 20}, choices);
  }
}

// What is read into host memory, and how far ahead, changes who makes room when.
TEST(HostWalk, LongRandomRunsWithATierInHostMemoryAreSafe) {
  const TestFiles files(::testing::TempDir(), 3);
  uint64_t prefetched = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    RandomChoices choices(seed);
    const int n_slots = 3 + static_cast<int>(seed % 10), window = seed % 4 == 0 ? 3 : 1;
    const uint64_t tier = (3 + seed % 14) * experts::size_classes(files.files()).classes[0].slot_bytes;
    prefetched += run(files, {{4, 6, 3}, n_slots, window, 20, 1 + static_cast<int>(seed % 3), tier}, choices)
                      .prefetched;
  }
  EXPECT_GT(prefetched, 1000);
}

TEST(Lookahead, FollowsTheMisses) {
  const auto observe = [](Lookahead& policy, auto missed) {
    for (int i = 0; i < 3000; ++i) policy.observe({.missed = missed(i), .prefetched = false, .waited = 0});
  };
  Lookahead policy(1, 49, {.decision = 6, .skip = 4, .load = 20});
  EXPECT_EQ(policy.window(), 1);
  observe(policy, [](int) { return false; });
  EXPECT_EQ(policy.window(), 49) << "nothing misses";
  observe(policy, [](int i) { return i % 20 == 0; });
  EXPECT_GT(policy.window(), 3);
  EXPECT_LT(policy.window(), 20);
  observe(policy, [](int i) { return i % 10 != 0; });
  EXPECT_EQ(policy.window(), 1) << "nearly every layer misses";
  Lookahead fixed(5, 5, {});
  observe(fixed, [](int) { return true; });
  EXPECT_EQ(fixed.window(), 5);
  Lookahead costly(1, 49, {.decision = 6, .skip = 400, .load = 20});
  observe(costly, [](int i) { return i % 20 == 0; });
  EXPECT_EQ(costly.window(), 1) << "a skipped layer costs more than a decision";
}

// Every tenth layer would miss, but prefetch is always right: windows of one layer never wait.
TEST(Lookahead, KnowsWhatPrefetchIsWorth) {
  const auto window = [](double load) {
    Lookahead policy(1, 49, {.decision = 6, .skip = 1, .load = load});
    for (int i = 0; i < 3000; ++i) policy.observe({.missed = false, .prefetched = i % 10 == 0, .waited = 0});
    return policy.window();
  };
  EXPECT_EQ(window(1000), 1) << "a wait is expensive";
  EXPECT_GT(window(1), 1) << "a wait is cheap";
}

}  // namespace
}  // namespace redlite::gpu
