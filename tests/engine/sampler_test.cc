#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"

namespace redlite::engine {
namespace {

using model::Token;
using ::testing::ElementsAre;

/// Logits that any program can make again: sums of four uniform values from a linear congruential generator.
class LogitSource {
 public:
  LogitSource(uint64_t seed, float scale) : state_(seed), scale_(scale) {}
  std::vector<float> make(int n) {
    std::vector<float> logits(static_cast<size_t>(n));
    for (float& logit : logits) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state_ >> 40) * 0x1p-24f;
      }
      logit = (sum - 2) * scale_;
    }
    return logits;
  }

 private:
  uint64_t state_;
  float scale_;
};

struct Golden {
  SamplerOptions options;
  int n_vocab;
  float scale;
  uint64_t seed;
  std::vector<Token> tokens;
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
#include "sampler_golden.inc"
  };
  return all;
}

TEST(Sampler, DrawsWhatLlamaCppDraws) {
  for (size_t i = 0; i < goldens().size(); ++i) {
    const Golden& golden = goldens()[i];
    Sampler sampler(golden.options);
    LogitSource source(golden.seed, golden.scale);
    for (const Token expected : golden.tokens) {
      const Token token = sampler.sample(source.make(golden.n_vocab));
      ASSERT_EQ(token, expected) << "golden " << i;
      sampler.accept(token);
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  Sampler sampler(SamplerOptions{});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-INFINITY, -7, -7}), 1);
}

TEST(Sampler, BestTokenOfAnyNumberOfLogits) {
  LogitSource source(3, 5);
  for (const int n : {1, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    std::vector<float> logits = source.make(n);
    const auto greatest = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    EXPECT_EQ(model::best_token(logits), greatest) << n;
    for (const int at : {n - 1, n / 2, 0}) {  // the last one is the lowest id
      logits[static_cast<size_t>(at)] = 100;
      EXPECT_EQ(model::best_token(logits), at) << n;
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(model::best_token(std::vector<float>{nan, -3, nan, -2}), 3);
  EXPECT_EQ(model::best_token(std::vector<float>{-1, -0.0f, 0.0f}), 1);
  EXPECT_THROW(model::best_token(std::vector<float>{nan, -infinity}), Error);
  EXPECT_THROW(model::best_token(std::vector<float>{0, infinity}), Error);
}

// Where only top_k candidates matter, the others are not looked at; a penalty that changes nothing makes it
// look at all of them.
TEST(Sampler, LooksAtFewCandidatesWithTheSameResult) {
  SamplerOptions few, all;
  few.temperature = all.temperature = 0.8f;
  few.top_p = all.top_p = 0.99f;
  all.frequency_penalty = 1;  // nothing is accepted
  for (const int top_k : {1, 20, 70}) {
    few.top_k = all.top_k = top_k;
    Sampler a(few), b(all);
    LogitSource source(static_cast<uint64_t>(top_k), 6);
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits = source.make(20000 + i);
      for (float& logit : logits) logit = std::round(logit * 4) / 4;  // many are equal
      if (i % 3 == 0) logits[77] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_EQ(a.sample(logits), b.sample(logits)) << "top " << top_k << ", draw " << i;
    }
  }
}

std::vector<int> histogram(const SamplerOptions& options, const std::vector<float>& logits, int draws) {
  Sampler sampler(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits))];
  return counts;
}

SamplerOptions everything_off() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  const std::vector<int> counts = histogram(everything_off(), logits, 80'000);
  EXPECT_NEAR(counts[0], 40'000, 700);
  EXPECT_NEAR(counts[1], 20'000, 700);
  EXPECT_NEAR(counts[2], 10'000, 500);
  EXPECT_NEAR(counts[3], 10'000, 500);
}

TEST(Sampler, EachFilterKeepsWhatItShould) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.3f), std::log(0.1f)};
  const auto kept = [&](const SamplerOptions& options) {
    std::vector<int> ids;
    const std::vector<int> counts = histogram(options, logits, 4000);
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) ids.push_back(static_cast<int>(i));
    }
    return ids;
  };
  SamplerOptions o = everything_off();
  EXPECT_THAT(kept(o), ElementsAre(0, 1, 2, 3));
  o.top_k = 3;  // of the equal ones the lower id
  EXPECT_THAT(kept(o), ElementsAre(0, 1, 2));
  o = everything_off();
  o.top_p = 0.7f;
  EXPECT_THAT(kept(o), ElementsAre(1, 2));
  o = everything_off();
  o.min_p = 0.5f;  // of the best one's probability
  EXPECT_THAT(kept(o), ElementsAre(1, 2));
  o = everything_off();
  o.temperature = 0.01f;
  EXPECT_THAT(kept(o), ElementsAre(1));
}

TEST(Sampler, PenaltiesCountWithinTheirWindow) {
  SamplerOptions o;
  o.frequency_penalty = 1;
  o.penalty_last_n = 3;
  Sampler sampler(o);
  const std::vector<float> logits = {2.5f, 1, 0};
  EXPECT_EQ(sampler.sample(logits), 0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), 0);  // 1.5
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), 1);  // 0.5
  sampler.accept(2);
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(logits), 0);  // one of them has left the window
}

TEST(Sampler, RepeatPenaltyPushesNegativeLogitsDown) {
  SamplerOptions o;
  o.repeat_penalty = 2;
  Sampler sampler(o);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1.4f}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1.6f}), 1);
}

TEST(Sampler, PenaltyWindowOfNoneAndOfEverything) {
  SamplerOptions o;
  o.presence_penalty = 10;
  o.penalty_last_n = 0;
  Sampler none(o);
  o.penalty_last_n = -1;
  Sampler everything(o);
  for (Sampler* sampler : {&none, &everything}) {
    sampler->accept(0);
    for (int i = 0; i < 1000; ++i) sampler->accept(2);
  }
  const std::vector<float> logits = {3, 2, 1};
  EXPECT_EQ(none.sample(logits), 0);
  EXPECT_EQ(everything.sample(logits), 1);
  everything.accept(-1);  // no token of ours: without effect
  everything.accept(3);
  EXPECT_EQ(everything.sample(logits), 1);
}

TEST(Sampler, NotANumberNeverWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler(SamplerOptions{});
  EXPECT_EQ(sampler.sample(std::vector<float>{nan, -3, nan}), 1);
  EXPECT_THROW(sampler.sample(std::vector<float>{nan, nan}), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{0, INFINITY}), Error);
}

TEST(Sampler, RefusesSettingsThatAreNoNumbers) {
  SamplerOptions o;
  o.repeat_penalty = 0;
  EXPECT_THROW(Sampler{o}, Error);
  o = SamplerOptions{};
  o.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(Sampler{o}, Error);
}

}  // namespace
}  // namespace redlite::engine
