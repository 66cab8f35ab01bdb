#include "bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "cpu/cpu_runner.h"
#include "model/temporary_model.h"

namespace redlite::bench {
namespace {

using model::LogitsFor;
using model::Token;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kContext = 400;

cpu::CpuOptions cpu_options() {
  cpu::CpuOptions options;
  options.context = kContext;
  options.threads = 1;
  return options;
}

class Silent final : public Watcher {
 public:
  void begin(const std::string& what, uint64_t tokens) override {
    seen.push_back(what + " " + std::to_string(tokens));
  }
  void reach(double) override {}
  void end() override {}
  std::vector<std::string> seen;
};

/// A runner that keeps a diary, and after some number of calls makes a mistake in the last bit of a logit.
class Diary final : public model::Runner {
 public:
  explicit Diary(const model::Model& model) : runner_(model, cpu_options()) {}

  struct Entry {
    int position, n;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  std::vector<std::vector<Token>> tokens;
  int wrong_call = -1;

  std::span<const float> forward(std::span<const Token> t, LogitsFor which) override {
    runner_.set_tap(tap_);
    entries.push_back({runner_.position(), static_cast<int>(t.size())});
    tokens.emplace_back(t.begin(), t.end());
    const std::span<const float> logits = runner_.forward(t, which);
    logits_.assign(logits.begin(), logits.end());
    if (static_cast<int>(entries.size()) - 1 == wrong_call && !logits_.empty())
      logits_.back() = std::nextafter(logits_.back(), 1e9f);
    return logits_;
  }
  int position() const override { return runner_.position(); }
  int capacity() const override { return runner_.capacity(); }
  void reset() override { runner_.reset(); }
  std::unique_ptr<model::Mark> mark() const override { return runner_.mark(); }
  void rewind(const model::Mark& mark) override { runner_.rewind(mark); }

 private:
  cpu::CpuRunner runner_;
  std::vector<float> logits_;
};

void PrintTo(const Diary::Entry& e, std::ostream* out) {
  *out << e.n << " at " << e.position;
}

class BenchTest : public ::testing::Test {
 protected:
  BenchTest() : file_(TinyModel("qwen3next")), model_(file_.path()), traffic_(model_, 4) {}
  Subject subject(model::Runner& runner) { return {runner, TinyModel::kVocab, traffic_}; }
  std::vector<Measurement> run(Bench& bench, model::Runner& runner, const std::vector<bench::Test>& tests) {
    Subject tested = subject(runner);
    return bench.run(tested, tests);
  }

  TemporaryModel file_;
  model::Model model_;
  Traffic traffic_;
  Silent watcher_;
};

constexpr Test kPrefill{TestKind::Prefill, 8, 20};
constexpr Test kDecode{TestKind::Decode, 3, 20};

TEST_F(BenchTest, ReadsTheDepthThenPromptsThereThenGoesOnThroughAText) {
  Diary runner(model_);
  Bench bench(2, nullptr, watcher_);
  const std::vector<Measurement> measured = run(bench, runner, {kDecode, kPrefill});
  using E = Diary::Entry;
  std::vector<E> expected = {E{0, 20}, E{20, 8}, E{20, 8}, E{20, 8}};
  for (const int round : {0, 1}) {  // written and timed, then checked
    static_cast<void>(round);
    for (int i = 0; i < 9; ++i) expected.push_back(E{20 + i, 1});
  }
  EXPECT_EQ(runner.entries, expected);
  EXPECT_NE(runner.tokens[2], runner.tokens[3]) << "each repetition has a prompt of its own";
  EXPECT_EQ(runner.tokens[1], runner.tokens[3]) << "the warm-up reads the last one's";
  for (size_t i = 4; i < 13; ++i) EXPECT_EQ(runner.tokens[i], runner.tokens[i + 9]);

  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].test, kPrefill);
  EXPECT_EQ(measured[1].test, kDecode);
  for (const Measurement& m : measured) EXPECT_EQ(m.seconds.size(), 2u);
  // Tokens at 23 to 28.
  EXPECT_DOUBLE_EQ(measured[1].floor_bytes,
                   (static_cast<double>(traffic_.decode(23)) + static_cast<double>(traffic_.decode(28))) / 2);
  // At least the experts of a token, at most all of them, in one pass over 8 tokens.
  const std::vector<int> least(TinyModel::kLayers, TinyModel::kExpertsUsed),
      most(TinyModel::kLayers, TinyModel::kExperts);
  EXPECT_GT(measured[0].floor_bytes * 8, static_cast<double>(traffic_.pass(20, 8, least)));
  EXPECT_LE(measured[0].floor_bytes * 8, static_cast<double>(traffic_.pass(20, 8, most)));
}

TEST_F(BenchTest, ASecondRunnerDoesTheSameTestsOnTheSameTextAndGetsTheSameBits) {
  Diary first(model_), second(model_);
  Bench bench(2, nullptr, watcher_);
  const std::vector<Measurement> a = run(bench, first, {kPrefill, kDecode});
  const std::vector<Measurement> b = run(bench, second, {kPrefill, kDecode});
  EXPECT_EQ(second.entries.size(), first.entries.size() - 9) << "the text was there";
  for (const size_t i : {0, 1}) EXPECT_EQ(a[i].fingerprint, b[i].fingerprint);
  EXPECT_NE(a[0].fingerprint, a[1].fingerprint);
}

TEST_F(BenchTest, ADeeperPlaceIsReachedFromTheLast) {
  Diary runner(model_), straight(model_);
  Bench bench(1, nullptr, watcher_), other(1, nullptr, watcher_);
  Subject tested = subject(runner);
  bench.run(tested, {kPrefill, kDecode});
  const size_t before = runner.entries.size();
  const bench::Test deeper{TestKind::Prefill, 8, 50};
  const std::vector<Measurement> measured = bench.run(tested, {deeper});
  EXPECT_EQ(runner.entries[before], (Diary::Entry{20, 30})) << "only the rest is read";
  EXPECT_EQ(measured[0].fingerprint, run(other, straight, {deeper})[0].fingerprint);
  bench.run(tested, {kPrefill});
  EXPECT_EQ(runner.entries[before + 3], (Diary::Entry{0, 20})) << "back means from the start";
}

TEST_F(BenchTest, AWrongBitAnywhereFailsTheRun) {
  for (const int call :
       {12, 13, 17, 21}) {  // decoded tokens: the last written; the first, one, the last checked
    Diary runner(model_);
    runner.wrong_call = call;
    Bench bench(2, nullptr, watcher_);
    EXPECT_THAT(
        [&] {
          run(bench, runner, {kPrefill, kDecode});
        },
        ThrowsMessage<Error>(HasSubstr("decode 3 at 20, token")))
        << call;
  }
  Diary runner(model_);
  runner.wrong_call = 3;
  Bench bench(2, nullptr, watcher_);
  EXPECT_THAT(
      [&] {
        run(bench, runner, {kPrefill, kDecode});
      },
      ThrowsMessage<Error>(HasSubstr("prefill 8 at 20, prompt 1: the logits are not those")));
  // Another cache size that computes something else in a repetition that the warm-up does not repeat.
  Diary right(model_), wrong(model_);
  wrong.wrong_call = 2;
  Bench both(2, nullptr, watcher_);
  run(both, right, {kPrefill});
  EXPECT_THAT([&] { run(both, wrong, {kPrefill}); }, ThrowsMessage<Error>(HasSubstr("prompt 0")));
}

TEST_F(BenchTest, CountsWhatTheRepetitionsDidAndNothingElse) {
  Diary runner(model_);
  Bench bench(2, nullptr, watcher_);
  Subject counted = subject(runner);
  counted.counters = [&] {
    Counters c;
    for (const Diary::Entry& e : runner.entries) c.selections += static_cast<uint64_t>(e.n);
    c.stage_seconds = {{"all", static_cast<double>(c.selections)}};
    return c;
  };
  const std::vector<Measurement> measured = bench.run(counted, {kPrefill, kDecode});
  EXPECT_EQ(measured[0].counters.selections, 16u);
  EXPECT_EQ(measured[1].counters.selections, 6u);
  EXPECT_THAT(measured[1].counters.stage_seconds, ElementsAre(std::pair<std::string, double>("all", 6.0)));
}

TEST_F(BenchTest, TheRivalRunsAfterEachRepetitionOfTestsItHas) {
  Diary runner(model_);
  Rival rival(R"(echo '[{"n_prompt": 0, "n_gen": 3, "n_depth": 20, "avg_ts": 5}]')");
  rival.warm_up({kDecode});
  Bench bench(2, &rival, watcher_);
  run(bench, runner, {kPrefill, kDecode});
  EXPECT_THAT(rival.rates(kDecode), ElementsAre(5, 5));
}

TEST_F(BenchTest, SaysWhatItIsDoing) {
  Diary runner(model_);
  Bench bench(2, nullptr, watcher_);
  run(bench, runner, {kPrefill, kDecode});
  EXPECT_THAT(watcher_.seen, ElementsAre("reading 20", "prefill 24", "decode 9", "checking 9"));
}

TEST(ExpertsTap, KnowsTheExpertsOfEachTokenAndReplayReadsThem) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  cpu::CpuRunner runner(model, cpu_options());
  const std::vector<Token> tokens = random_tokens(4, model.config().n_vocab, 7);
  std::vector<TokenExperts> experts;
  {
    ExpertsTap tap(runner);
    for (const Token& token : tokens) {
      runner.forward({&token, 1}, LogitsFor::Last);
      experts.push_back(tap.take());
    }
  }
  runner.reset();
  TokenExperts selected;
  runner.set_tap([&](model::Stage stage, int, int, int, std::span<const float> ids) {
    if (stage == model::Stage::ExpertIds) selected.insert(selected.end(), ids.begin(), ids.end());
  });
  for (size_t i = 0; i < tokens.size(); ++i) {
    selected.clear();
    runner.forward({&tokens[i], 1}, LogitsFor::Last);
    EXPECT_EQ(experts[i], selected) << i;
  }

  std::vector<int> found;
  const auto find = [&](int layer, int expert) {
    found.push_back(expert);
    return runner.expert_in_memory(layer, expert);
  };
  EXPECT_GT(Replay(model, find, 1).read({&experts[2], 1}), 0);
  EXPECT_EQ(found, experts[2]);
}

// A cache that could hold all that a text uses would have no misses in one that it knows.
TEST_F(BenchTest, NoCacheKnowsTheTextThatItIsTimedWith) {
  Diary runner(model_);
  Bench bench(1, nullptr, watcher_);
  std::vector<size_t> calls;
  Subject counted = subject(runner);
  counted.counters = [&] {
    calls.push_back(runner.entries.size());
    return Counters{};
  };
  bench.run(counted, {kDecode});
  // Around the warm-up and the repetition, the first three passes of all behind the depth's.
  EXPECT_THAT(calls, ElementsAre(1, 4, 7));
}

TEST(Hash, SeesEveryBitAndPlace) {
  const std::vector<float> logits = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const uint64_t value = hash(logits);
  EXPECT_EQ(hash(logits), value);
  for (size_t i = 0; i < logits.size(); ++i) {
    std::vector<float> other = logits;
    other[i] = std::nextafter(other[i], 0.0f);
    EXPECT_NE(hash(other), value) << i;
  }
  EXPECT_NE(hash(std::span(logits).first(8)), value);
  EXPECT_NE(hash(std::vector<float>{2, 1, 3, 4, 5, 6, 7, 8, 9}), value);
  EXPECT_NE(hash(std::vector<float>{0.0f}), hash(std::vector<float>{-0.0f}));
}

TEST(Median, OfEvenAndOddNumbers) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(BenchTokens, AreCountedWithoutOverflow) {
  EXPECT_EQ(Bench::tokens_needed({kPrefill, kDecode}, 5), 18);
  EXPECT_EQ(Bench::tokens_needed({{TestKind::Prefill, 512, 0}, kDecode}, 5), 512);
  EXPECT_EQ(Bench::tokens_needed({{TestKind::Decode, 1 << 22, 0}}, 1000), (int64_t{1} << 22) * 1001);
}

}  // namespace
}  // namespace redlite::bench
