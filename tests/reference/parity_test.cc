#include "reference/parity.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <random>

#include "base/error.h"
#include "model/temporary_model.h"
#include "reference/math.h"
#include "reference/reference_runner.h"

namespace redlite::reference {
namespace {

using model::LogitsFor;
using model::Stage;
using model::Token;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr int kTokens = 80;  // more than compare() runs at once

std::vector<Token> some_tokens(int n = kTokens) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * i * 5 + i * 29 + 5) % TinyModel::kVocab);
  return tokens;
}

// The model of `right` on the reference against that of `wrong`.
ParityReport compare_files(const TinyModel& right, const TinyModel& wrong) {
  const TemporaryModel file_a(right), file_b(wrong);
  const model::Model model_a(file_a.path()), model_b(file_b.path());
  ReferenceRunner a(model_a, kTokens), b(model_b, kTokens);
  return compare(model_a, a, b, some_tokens());
}

// The reference, with what it reports at a stage changed.
class Tampered final : public model::Runner {
 public:
  using Change = std::function<void(Stage, int layer, int position, std::vector<float>&)>;
  Tampered(const model::Model& model, Change change) : runner_(model, kTokens) {
    runner_.set_tap([this, change](Stage stage, int layer, int position, int, std::span<const float> values) {
      std::vector<float> changed(values.begin(), values.end());
      change(stage, layer, position, changed);
      if (!changed.empty()) tap_(stage, layer, position, static_cast<int>(changed.size()), changed);
    });
  }
  std::span<const float> forward(std::span<const Token> tokens, LogitsFor which) override {
    return runner_.forward(tokens, which);
  }
  int position() const override { return runner_.position(); }
  int capacity() const override { return runner_.capacity(); }
  void reset() override { runner_.reset(); }
  std::unique_ptr<model::Mark> mark() const override { return runner_.mark(); }
  void rewind(const model::Mark& mark) override { runner_.rewind(mark); }

 private:
  ReferenceRunner runner_;
};

ParityReport compare_tampered(Tampered::Change change) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner a(model, kTokens);
  Tampered b(model, std::move(change));
  return compare(model, a, b, some_tokens());
}

const StageError& stage_of(const ParityReport& report, Stage stage, int layer) {
  return *std::ranges::find_if(report.stages,
                               [&](const StageError& s) { return s.stage == stage && s.layer == layer; });
}

TEST(Parity, ARunnerEqualsItself) {
  for (const char* architecture : {"qwen3next", "qwen35moe", "qwen3moe"}) {
    const ParityReport report = compare_files(TinyModel(architecture), TinyModel(architecture));
    EXPECT_THAT(report.failures, IsEmpty());
    EXPECT_EQ(report.n_tokens, kTokens);
    EXPECT_EQ(report.top1_equal, kTokens);
    EXPECT_EQ(report.max_kl, 0);
    EXPECT_THAT(report.differences, IsEmpty());
    EXPECT_EQ(report.stages.size(), 3u + 8 * TinyModel::kLayers);
    for (const StageError& s : report.stages) {
      EXPECT_EQ(s.drift.worst, 0);
      EXPECT_EQ(s.drift.overall, 0);
      EXPECT_LT(s.local.worst, 1e-5);  // taps are rounded to F32
    }
  }
}

TEST(Parity, LayoutsAreTheSame) {
  EXPECT_THAT(
      compare_files(TinyModel("qwen3next"), TinyModel("qwen3next").use_ssm_in(1).fuse_gate_up(2)).failures,
      IsEmpty());
}

TEST(Parity, RefusesAnEmptyInput) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner a(model, 1), b(model, 1);
  EXPECT_THAT([&] { compare(model, a, b, {}); }, ThrowsMessage<Error>(HasSubstr("no tokens")));
}

// Mistakes an engine could make, in the weights or the metadata that b runs with. Each is found, and the
// local errors say where: no stage before it fails locally.
struct Mistake {
  const char* name;
  const char* architecture;
  std::function<void(TinyModel&)> make;
  const char* where;  ///< the only failing local stage
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreFoundWhereTheyAre) {
  const Mistake& mistake = GetParam();
  TinyModel wrong(mistake.architecture);
  mistake.make(wrong);
  const ParityReport report = compare_files(TinyModel(mistake.architecture), wrong);
  std::vector<std::string> local;
  for (const std::string& failure : report.failures)
    if (failure.find("local error") != std::string::npos) local.push_back(failure);
  EXPECT_THAT(local, Not(IsEmpty()));
  EXPECT_THAT(local, Each(StartsWith(mistake.where)));
}

void add_noise(TinyModel& model, const char* tensor, float size) {
  std::mt19937 random(1);
  std::normal_distribution<float> noise;
  for (float& v : model.tensor(tensor).values) v *= 1 + size * noise(random);
}

void swap_rows(TinyModel& model, const char* tensor, size_t a, size_t b, size_t size) {
  float* values = model.tensor(tensor).values.data();
  std::swap_ranges(values + a * size, values + (a + 1) * size, values + b * size);
}

INSTANTIATE_TEST_SUITE_P(
    All, Mistakes,
    ::testing::Values(
        Mistake{"swapped_experts", "qwen3next",
                [](TinyModel& m) {
                  for (const char* tensor : {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight",
                                             "blk.1.ffn_down_exps.weight"})
                    swap_rows(m, tensor, 2, 5, size_t{TinyModel::kEmbd} * TinyModel::kExpertFf);
                },
                "layer 1 ffn_output"},
        Mistake{"swapped_gate_and_up", "qwen3moe",
                [](TinyModel& m) {
                  std::swap(m.tensor("blk.2.ffn_gate_exps.weight").values,
                            m.tensor("blk.2.ffn_up_exps.weight").values);
                },
                "layer 2 ffn_output"},
        Mistake{"rope_base", "qwen3next", [](TinyModel& m) { m.set("rope.freq_base", 20000.0f); },
                "layer 3 mixer_output"},
        // Q heads 0 and 1 exchanged: V heads meet another K head's question, as with the wrong pairing.
        Mistake{"head_pairing", "qwen35moe",
                [](TinyModel& m) {
                  swap_rows(m, "blk.0.attn_qkv.weight", 0, 1,
                            size_t{TinyModel::kStateDim} * TinyModel::kEmbd);
                },
                "layer 0 mixer_output"},
        Mistake{"five_percent_of_noise_in_one_projection", "qwen3next",
                [](TinyModel& m) { add_noise(m, "blk.2.ssm_out.weight", 0.05f); }, "layer 2 mixer_output"},
        Mistake{"noise_in_the_router", "qwen3next",
                [](TinyModel& m) { add_noise(m, "blk.2.ffn_gate_inp.weight", 1e-6f); }, "layer 2 "},
        Mistake{"a_norm", "qwen3next", [](TinyModel& m) { add_noise(m, "blk.2.attn_norm.weight", 1e-4f); },
                "layer 2 mixer_input"},
        Mistake{"embedding", "qwen3next", [](TinyModel& m) { add_noise(m, "token_embd.weight", 1e-6f); },
                "embedding"},
        Mistake{"output", "qwen3next", [](TinyModel& m) { add_noise(m, "output.weight", 0.05f); }, "logits"}),
    [](const auto& param) { return std::string(param.param.name); });

// How the errors are counted: on one value of one token.
TEST(Parity, MeasuresErrors) {
  std::vector<float> right;
  double all = 0;  // square of the length of all tokens' values
  const ParityReport report =
      compare_tampered([&](Stage stage, int layer, int position, std::vector<float>& v) {
        if (stage != Stage::FinalNorm || layer != -1) return;
        for (const float x : v) all += static_cast<double>(x) * x;
        if (position != 70) return;
        right = v;
        v[3] += 0.5f;
      });
  ASSERT_FALSE(right.empty());
  const StageError& s = stage_of(report, Stage::FinalNorm, -1);
  for (const ErrorMeasure* m : {&s.local, &s.drift}) {
    EXPECT_NEAR(m->absolute, 0.5, 1e-5);
    EXPECT_EQ(m->position, 70);
    EXPECT_NEAR(m->worst,
                0.5 / std::sqrt(dot(Vec(right.begin(), right.end()), Vec(right.begin(), right.end()))), 1e-5);
    EXPECT_NEAR(m->overall, 0.5 / std::sqrt(all), 1e-5);
    EXPECT_FALSE(m->within_bounds());
  }
}

// Quantised weights: products may take 8-bit activations, so the bounds are wide, but not for five per cent
// of noise, and not for one of a hundred tokens that is quite wrong.
TEST(Parity, BoundsForQuantisedWeights) {
  const model::Model model(REDLITE_DEMO_MODEL);
  const auto failures = [&](Stage noisy, double noise, int only_position) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    Tampered b(model, [&](Stage stage, int layer, int position, std::vector<float>& v) {
      if (stage != noisy || layer > 2 || (only_position >= 0 && position != only_position)) return;
      double size = 0;
      for (const float x : v) size += static_cast<double>(x) * x;
      size = std::sqrt(size / static_cast<double>(v.size()));
      for (float& x : v) x += static_cast<float>(noise * size * normal(random));
    });
    ReferenceRunner a(model, kTokens);
    std::vector<std::string> local;
    for (const std::string& failure : compare(model, a, b, some_tokens(12)).failures)
      if (failure.find(model::stage_name(noisy)) != std::string::npos &&
          failure.find("local error") != std::string::npos)
        local.push_back(failure);
    return local;
  };
  for (const Stage stage : {Stage::MixerOutput, Stage::FfnOutput, Stage::Logits}) {
    EXPECT_THAT(failures(stage, 0.005, -1), IsEmpty());
    EXPECT_THAT(failures(stage, 0.05, -1), Not(IsEmpty())) << model::stage_name(stage);
    EXPECT_THAT(failures(stage, 0.5, 9), Not(IsEmpty())) << model::stage_name(stage);
  }
  EXPECT_THAT(failures(Stage::FfnInput, 1e-4, -1), Not(IsEmpty()));
  EXPECT_THAT(failures(Stage::LayerOutput, 1e-5, -1), Not(IsEmpty()));
}

// A selection that does not follow from its own input, whatever the size of the numbers.
TEST(Parity, OneWrongSelectionIsFound) {
  const ParityReport report =
      compare_tampered([](Stage stage, int layer, int position, std::vector<float>& v) {
        if (stage == Stage::ExpertIds && layer == 2 && position == 70) std::swap(v[0], v[2]);
      });
  EXPECT_THAT(report.failures, Contains(StartsWith("layer 2 expert_ids: local")));
  EXPECT_THAT(report.failures, Contains(StartsWith("layer 2 position 70 rank 0: expert ")));
  ASSERT_EQ(report.differences.size(), 2u);
  EXPECT_FALSE(report.differences[0].near_tie);
  EXPECT_EQ(report.differences[0].perturbation, 0);
  EXPECT_GT(report.differences[0].margin, 0);
}

TEST(Parity, NanAndMissingStagesAreFound) {
  ParityReport report = compare_tampered([](Stage stage, int layer, int position, std::vector<float>& v) {
    if (stage == Stage::FfnOutput && layer == 1 && position == 3)
      v[7] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_THAT(report.failures, Contains(StartsWith("layer 1 ffn_output: local error inf at position 3")));
  EXPECT_THAT(report.failures, Contains(StartsWith("layer 1 ffn_output: drift error inf at position 3")));

  for (const Stage missing : {Stage::Embedding, Stage::MixerOutput, Stage::RouterLogits, Stage::ExpertIds,
                              Stage::ExpertWeights, Stage::Logits}) {
    report = compare_tampered([&](Stage stage, int, int, std::vector<float>& v) {
      if (stage == missing) v.clear();
    });
    EXPECT_THAT(report.failures, Contains(AllOf(HasSubstr(model::stage_name(missing)), HasSubstr("inf"))));
  }
}

TEST(Parity, LogitsAreJudgedByTheirDivergence) {
  const ParityReport report = compare_tampered([](Stage stage, int, int, std::vector<float>& v) {
    if (stage == Stage::Logits) std::ranges::reverse(v);
  });
  EXPECT_THAT(report.failures, Contains(StartsWith("logits: median KL")));
  EXPECT_LT(report.top1_equal, kTokens / 2);
  EXPECT_GT(report.mean_kl, 0.1);
}

// KL((3/4, 1/4) || (1/2, 1/2)), set by hand.
TEST(Parity, DivergenceIsInNats) {
  const auto two = [](double p) {
    return [p](Stage stage, int, int, std::vector<float>& v) {
      if (stage != Stage::Logits) return;
      std::ranges::fill(v, -1000.0f);
      v[0] = static_cast<float>(std::log(p));
      v[1] = static_cast<float>(std::log(1 - p));
    };
  };
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  Tampered a(model, two(0.75)), b(model, two(0.5));
  const ParityReport report = compare(model, a, b, some_tokens(3));
  const double expected = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(report.mean_kl, expected, 1e-6);
  EXPECT_NEAR(report.max_kl, expected, 1e-6);
}

// A model in which, at one token of layer 1, the experts at two ranks are as good as tied.
TinyModel with_near_tie(size_t rank, int position) {
  TinyModel tiny("qwen3next");
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  ReferenceRunner runner(model, kTokens);
  std::vector<float> input, logits;
  runner.set_tap([&](Stage stage, int layer, int at, int, std::span<const float> v) {
    if (layer != 1 || at != position) return;
    if (stage == Stage::FfnInput) input.assign(v.begin(), v.end());
    if (stage == Stage::RouterLogits) logits.assign(v.begin(), v.end());
  });
  runner.forward(some_tokens(), LogitsFor::None);
  std::vector<size_t> order(logits.size());
  for (size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::ranges::sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double gap = logits[order[rank]] - logits[order[rank + 1]];
  double size = 0;
  for (const float v : input) size += static_cast<double>(v) * v;
  float* row = tiny.tensor("blk.1.ffn_gate_inp.weight").values.data() + order[rank + 1] * input.size();
  for (size_t i = 0; i < input.size(); ++i) row[i] += static_cast<float>(gap * input[i] / size);
  return tiny;
}

// The same model with rounding noise in the router's input.
TinyModel with_noise(TinyModel model, float size) {
  add_noise(model, "blk.1.post_attention_norm.weight", size);
  return model;
}

TEST(Parity, NearTiesOfRankAreExcusedAndCounted) {
  const TinyModel tied = with_near_tie(0, 20);
  ParityReport flipped;
  for (const float size : {5e-6f, -5e-6f}) {  // one of the two signs tips the scales
    const ParityReport report = compare_files(tied, with_noise(tied, size));
    EXPECT_THAT(report.failures, IsEmpty());
    if (!report.differences.empty()) flipped = report;
  }
  ASSERT_EQ(flipped.differences.size(), 2u);
  for (const SelectionDifference& d : flipped.differences) {
    EXPECT_TRUE(d.near_tie);
    EXPECT_EQ(d.layer, 1);
    EXPECT_EQ(d.position, 20);
    EXPECT_LT(d.margin, 1e-4);
    EXPECT_LE(d.margin, 2 * d.perturbation);
  }
}

// An expert that falls past two others changes three ranks. The two keep their order, which no rounding has
// to explain; were it changed, too, that would be a mistake.
TEST(Parity, AnExpertThatFallsPastTwoOthersIsANearTie) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  const auto report = [&](std::vector<float> order, std::vector<float> values) {
    const auto with = [](std::vector<float> ids, std::vector<float> logits) {
      return [=](Stage stage, int layer, int position, std::vector<float>& v) {
        if (layer != 2 || position != 2) return;
        if (stage == Stage::ExpertIds) v = ids;
        if (stage != Stage::RouterLogits) return;
        std::ranges::fill(v, 0.0f);
        for (size_t e = 0; e < logits.size(); ++e) v[e] = logits[e];
      };
    };
    Tampered a(model, with({0, 1, 2}, {1, 1 - 2e-4f, 1 - 6e-4f}));
    Tampered b(model, with(std::move(order), std::move(values)));
    return compare(model, a, b, some_tokens(3));
  };
  // Expert 0 loses 8e-4; the others' logits are the same in both.
  const std::vector<float> values = {1 - 8e-4f, 1 - 2e-4f, 1 - 6e-4f};
  const ParityReport moved = report({1, 2, 0}, values);
  ASSERT_EQ(moved.differences.size(), 3u);
  for (const SelectionDifference& d : moved.differences) EXPECT_TRUE(d.near_tie) << d.rank;
  EXPECT_NEAR(moved.differences[1].margin, 6e-4, 1e-6);
  EXPECT_NEAR(moved.differences[1].perturbation, 8e-4, 1e-6);
  EXPECT_THAT(moved.failures, Not(Contains(HasSubstr("no near-tie"))));

  const ParityReport wrong = report({2, 1, 0}, values);
  EXPECT_THAT(wrong.failures, Contains(StartsWith("layer 2 position 2 rank 0: expert 0 against 2")));
}

// When only one of the two runs an expert, what comes behind differs for real: it is not drift.
TEST(Parity, WhatFollowsANearTieIsNotDrift) {
  const TinyModel tied = with_near_tie(TinyModel::kExpertsUsed - 1, 20);
  ParityReport flipped;
  for (const float size : {5e-6f, -5e-6f}) {
    ParityReport report = compare_files(tied, with_noise(tied, size));
    if (!report.differences.empty()) flipped = std::move(report);
  }
  ASSERT_EQ(flipped.differences.size(), 1u);
  EXPECT_TRUE(flipped.differences[0].near_tie);
  EXPECT_GT(flipped.max_kl, 1e-3);  // it did make a difference
  EXPECT_LT(stage_of(flipped, Stage::LayerOutput, 1).drift.worst, 1e-4);
  EXPECT_LT(stage_of(flipped, Stage::LayerOutput, 3).drift.worst, 1e-4);
  EXPECT_LT(stage_of(flipped, Stage::Logits, -1).drift.worst, 1e-4);
  EXPECT_LT(stage_of(flipped, Stage::LayerOutput, 3).local.worst,
            1e-5);  // and everything is checked locally
}

}  // namespace
}  // namespace redlite::reference
