#include "reference/reference_runner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "base/error.h"
#include "model/router.h"
#include "model/temporary_model.h"
#include "reference/math.h"

namespace redlite::reference {
namespace {

using model::LogitsFor;
using model::Stage;
using model::Token;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

std::vector<Token> some_tokens(int n) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 29 + 5) % TinyModel::kVocab);
  return tokens;
}

std::vector<float> logits_of(const TinyModel& tiny, const std::vector<Token>& tokens) {
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  ReferenceRunner runner(model, 100);
  const std::span<const float> logits = runner.forward(tokens, LogitsFor::All);
  return {logits.begin(), logits.end()};
}

/// All values that a run tapped, by stage, layer and position.
using Taps = std::map<std::tuple<Stage, int, int>, std::vector<float>>;

Taps taps_of(const TinyModel& tiny, const std::vector<Token>& tokens) {
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  ReferenceRunner runner(model, 100);
  Taps taps;
  runner.set_tap([&](Stage stage, int layer, int position, int width, std::span<const float> values) {
    EXPECT_EQ(values.size(), static_cast<size_t>(width));
    taps[{stage, layer, position}].assign(values.begin(), values.end());
  });
  runner.forward(tokens, LogitsFor::All);
  return taps;
}

Vec to_double(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}

// Rows [first, first + count) of a tensor of the tiny model, times x.
Vec rows_times(TinyModel& tiny, const std::string& name, int first, int count, const Vec& x) {
  const std::vector<float>& w = tiny.tensor(name).values;
  Vec y(static_cast<size_t>(count), 0.0);
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t i = 0; i < x.size(); ++i)
      y[r] += static_cast<double>(w[(static_cast<size_t>(first) + r) * x.size() + i]) * x[i];
  return y;
}

// What llama.cpp v0.5.0 computes for the same files: the best token after each prefix and its logit.
struct Judged {
  const char* architecture;
  std::vector<std::pair<Token, float>> best;
};

void PrintTo(const Judged& judged, std::ostream* out) {
  *out << judged.architecture;
}

class AgainstLlamaCpp : public ::testing::TestWithParam<Judged> {};

TEST_P(AgainstLlamaCpp, BestTokensAndLogits) {
  const Judged& judged = GetParam();
  const std::vector<float> logits = logits_of(TinyModel(judged.architecture), some_tokens(12));
  ASSERT_EQ(logits.size(), 12u * TinyModel::kVocab);
  for (size_t t = 0; t < 12; ++t) {
    const auto first = logits.begin() + static_cast<ptrdiff_t>(t * TinyModel::kVocab);
    const auto best = std::max_element(first, first + TinyModel::kVocab);
    EXPECT_EQ(best - first, judged.best[t].first) << "position " << t;
    EXPECT_NEAR(*best, judged.best[t].second, 1e-4) << "position " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AgainstLlamaCpp,
                         ::testing::Values(Judged{"qwen3next",
                                                  {{45, 2.445756f},
                                                   {29, 3.473511f},
                                                   {28, 3.529927f},
                                                   {12, 4.468248f},
                                                   {45, 2.494567f},
                                                   {45, 2.544271f},
                                                   {42, 2.846350f},
                                                   {24, 3.010493f},
                                                   {39, 2.659862f},
                                                   {28, 3.956942f},
                                                   {40, 3.630404f},
                                                   {42, 3.486668f}}},
                                           Judged{"qwen35moe",
                                                  {{29, 3.083067f},
                                                   {31, 4.192702f},
                                                   {43, 3.159652f},
                                                   {6, 2.029808f},
                                                   {36, 2.933475f},
                                                   {39, 3.146465f},
                                                   {29, 3.295609f},
                                                   {3, 3.121365f},
                                                   {26, 3.409628f},
                                                   {28, 3.088590f},
                                                   {16, 3.076387f},
                                                   {26, 4.540785f}}},
                                           Judged{"qwen3moe",
                                                  {{40, 2.896426f},
                                                   {33, 3.404810f},
                                                   {33, 2.662628f},
                                                   {26, 2.789498f},
                                                   {33, 2.599479f},
                                                   {40, 3.003166f},
                                                   {40, 3.314331f},
                                                   {26, 2.786320f},
                                                   {11, 4.243148f},
                                                   {40, 4.423905f},
                                                   {28, 3.315137f},
                                                   {19, 2.343036f}}}),
                         [](const auto& param) { return std::string(param.param.architecture); });

// Every layout of the same weights gives the same logits, bit for bit.
TEST(Reference, LayoutsAreTheSameModel) {
  const std::vector<Token> tokens = some_tokens(6);
  const std::vector<float> plain = logits_of(TinyModel("qwen3next"), tokens);
  EXPECT_EQ(logits_of(TinyModel("qwen3next").use_ssm_in(0).use_ssm_in(2), tokens), plain);
  EXPECT_EQ(logits_of(TinyModel("qwen3next").fuse_gate_up(0).fuse_gate_up(3), tokens), plain);
  EXPECT_EQ(logits_of(TinyModel("qwen3next").fuse_attention(3), tokens), plain);
  EXPECT_EQ(logits_of(TinyModel("qwen3next").add_mtp_block(), tokens), plain);
  EXPECT_NE(logits_of(TinyModel("qwen3next").tie_output(), tokens), plain);
}

// The first token attends to itself only, so attention hands on its value, gated.
TEST(Reference, GatedAttentionOfTheFirstToken) {
  TinyModel tiny("qwen3next");
  const Taps taps = taps_of(tiny, {3});
  const Vec h = to_double(taps.at({Stage::MixerInput, 3, 0}));
  constexpr int kDim = TinyModel::kHeadDim;
  Vec attended;
  for (int head = 0; head < TinyModel::kHeads; ++head) {
    const Vec v = rows_times(tiny, "blk.3.attn_v.weight", head / 2 * kDim, kDim, h);
    const Vec gate = rows_times(tiny, "blk.3.attn_q.weight", (2 * head + 1) * kDim, kDim, h);
    for (size_t i = 0; i < kDim; ++i) attended.push_back(v[i] / (1 + std::exp(-gate[i])));
  }
  const Vec expected = rows_times(tiny, "blk.3.attn_output.weight", 0, TinyModel::kEmbd, attended);
  EXPECT_THAT(taps.at({Stage::MixerOutput, 3, 0}), Pointwise(FloatNear(1e-5f), expected));
}

// The second token weighs two values by the softmax of two scores.
TEST(Reference, AttentionOfTheSecondToken) {
  TinyModel tiny("qwen3moe");
  const Taps taps = taps_of(tiny, {3, 40});
  const Vec h[2] = {to_double(taps.at({Stage::MixerInput, 2, 0})),
                    to_double(taps.at({Stage::MixerInput, 2, 1}))};
  constexpr int kDim = TinyModel::kHeadDim;
  const auto normed = [&](const char* weight, const char* norm, int head, int position) {
    Vec x =
        rms_norm(rows_times(tiny, weight, head * kDim, kDim, h[position]), tiny.tensor(norm).values, 1e-6f);
    rope(x, kDim, 10000, position);
    return x;
  };
  Vec attended;
  for (int head = 0; head < TinyModel::kHeads; ++head) {
    const Vec q = normed("blk.2.attn_q.weight", "blk.2.attn_q_norm.weight", head, 1);
    double e[2];
    for (int t = 0; t < 2; ++t) {
      const Vec k = normed("blk.2.attn_k.weight", "blk.2.attn_k_norm.weight", head / 2, t);
      e[t] = std::exp(dot(q, k) / 4);
    }
    const Vec v0 = rows_times(tiny, "blk.2.attn_v.weight", head / 2 * kDim, kDim, h[0]);
    const Vec v1 = rows_times(tiny, "blk.2.attn_v.weight", head / 2 * kDim, kDim, h[1]);
    for (size_t i = 0; i < kDim; ++i) attended.push_back((e[0] * v0[i] + e[1] * v1[i]) / (e[0] + e[1]));
  }
  const Vec expected = rows_times(tiny, "blk.2.attn_output.weight", 0, TinyModel::kEmbd, attended);
  EXPECT_THAT(taps.at({Stage::MixerOutput, 2, 1}), Pointwise(FloatNear(1e-5f), expected));
}

// From an empty state the delta rule answers q with v * beta * (k . q); the convolution sees one input.
TEST(Reference, DeltaNetOfTheFirstToken) {
  for (const std::string architecture : {"qwen3next", "qwen35moe"}) {
    const bool grouped = architecture == "qwen3next";
    TinyModel tiny(architecture);
    const Taps taps = taps_of(tiny, {11});
    const Vec h = to_double(taps.at({Stage::MixerInput, 1, 0}));
    constexpr int kDim = TinyModel::kStateDim;
    Vec qkv = rows_times(tiny, "blk.1.attn_qkv.weight", 0, TinyModel::kConvDim, h);
    const std::vector<float>& conv = tiny.tensor("blk.1.ssm_conv1d.weight").values;
    for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = silu(qkv[i] * static_cast<double>(conv[i * 4 + 3]));
    Vec read;
    for (int head = 0; head < TinyModel::kVHeads; ++head) {
      const int k_head = grouped ? head / 2 : head % 2;
      const auto at = [&](int offset) { return std::span(qkv).subspan(static_cast<size_t>(offset), kDim); };
      const std::span<double> q = at(k_head * kDim), k = at(TinyModel::kKeyDim + k_head * kDim),
                              v = at(2 * TinyModel::kKeyDim + head * kDim);
      // ssm_ba has [b b a a] for each K head.
      const double b = grouped ? rows_times(tiny, "blk.1.ssm_ba.weight", k_head * 4 + head % 2, 1, h)[0]
                               : rows_times(tiny, "blk.1.ssm_beta.weight", head, 1, h)[0];
      const double qk = dot(q, k) / std::sqrt((dot(q, q) + 1e-6) * (dot(k, k) + 1e-6));
      Vec o(v.begin(), v.end());
      for (double& x : o) x *= qk / (1 + std::exp(-b)) / std::sqrt(kDim);
      const Vec normed = rms_norm(o, tiny.tensor("blk.1.ssm_norm.weight").values, 1e-6f);
      const Vec z = rows_times(tiny, "blk.1.attn_gate.weight", head * kDim, kDim, h);
      for (size_t i = 0; i < kDim; ++i) read.push_back(normed[i] * silu(z[i]));
    }
    const Vec expected = rows_times(tiny, "blk.1.ssm_out.weight", 0, TinyModel::kEmbd, read);
    EXPECT_THAT(taps.at({Stage::MixerOutput, 1, 0}), Pointwise(FloatNear(1e-5f), expected)) << architecture;
  }
}

// The selected experts by their shares, and the shared expert by its gate.
TEST(Reference, FfnOfOneToken) {
  TinyModel tiny("qwen3next");
  const Taps taps = taps_of(tiny, {17});
  const std::vector<float>& input = taps.at({Stage::FfnInput, 2, 0});
  const Vec f = to_double(input);

  const std::vector<float>& router = tiny.tensor("blk.2.ffn_gate_inp.weight").values;
  std::vector<float> logits;
  for (size_t e = 0; e < TinyModel::kExperts; ++e)
    logits.push_back(model::router_logit(router.data() + e * input.size(), input.data(), TinyModel::kEmbd));
  EXPECT_EQ(taps.at({Stage::RouterLogits, 2, 0}), logits);
  std::vector<int32_t> ids(TinyModel::kExpertsUsed);
  std::vector<float> shares(ids.size());
  model::select_experts(logits, 1, ids, shares);
  EXPECT_EQ(taps.at({Stage::ExpertIds, 2, 0}), std::vector<float>(ids.begin(), ids.end()));
  EXPECT_EQ(taps.at({Stage::ExpertWeights, 2, 0}), shares);

  Vec expected(TinyModel::kEmbd, 0.0);
  const auto add = [&](double share, const std::string& kind, int index, int ff) {
    Vec g = rows_times(tiny, "blk.2.ffn_gate_" + kind, index * ff, ff, f);
    const Vec u = rows_times(tiny, "blk.2.ffn_up_" + kind, index * ff, ff, f);
    for (size_t i = 0; i < g.size(); ++i) g[i] = silu(g[i]) * u[i];
    const Vec y = rows_times(tiny, "blk.2.ffn_down_" + kind, index * TinyModel::kEmbd, TinyModel::kEmbd, g);
    for (size_t i = 0; i < y.size(); ++i) expected[i] += share * y[i];
  };
  for (size_t i = 0; i < ids.size(); ++i) add(shares[i], "exps.weight", ids[i], TinyModel::kExpertFf);
  const double gate = rows_times(tiny, "blk.2.ffn_gate_inp_shexp.weight", 0, 1, f)[0];
  add(sigmoid(gate), "shexp.weight", 0, TinyModel::kSharedFf);
  EXPECT_THAT(taps.at({Stage::FfnOutput, 2, 0}), Pointwise(FloatNear(1e-5f), expected));
}

// The residual stream: what each stage adds is what the next one starts from.
TEST(Reference, ResidualsAddUp) {
  const Taps taps = taps_of(TinyModel("qwen3next"), {1, 2});
  std::vector<float> x = taps.at({Stage::Embedding, -1, 1});
  for (int l = 0; l < TinyModel::kLayers; ++l) {
    for (const Stage stage : {Stage::MixerOutput, Stage::FfnOutput}) {
      const std::vector<float>& add = taps.at({stage, l, 1});
      for (size_t i = 0; i < x.size(); ++i) x[i] += add[i];
    }
    EXPECT_THAT(taps.at({Stage::LayerOutput, l, 1}), Pointwise(FloatNear(1e-5f), x));
  }
}

TEST(Reference, TapsEveryStageOfEveryTokenInOrder) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner runner(model, 10);
  std::vector<std::string> seen;
  runner.set_tap([&](Stage stage, int layer, int position, int width, std::span<const float>) {
    if (position == 1 && (layer < 0 || layer == 3))
      seen.push_back(fmt::format("{} {} {}", model::stage_name(stage), layer, width));
  });
  runner.forward(some_tokens(2), LogitsFor::Last);
  EXPECT_THAT(seen, ElementsAre("embedding -1 32", "mixer_input 3 32", "mixer_output 3 32", "ffn_input 3 32",
                                "router_logits 3 8", "expert_ids 3 3", "expert_weights 3 3",
                                "ffn_output 3 32", "layer_output 3 32", "final_norm -1 32", "logits -1 48"));
}

TEST(Reference, ChunksOfAnySizeGiveTheSameBits) {
  const std::vector<Token> tokens = some_tokens(11);
  for (const char* architecture : {"qwen3next", "qwen35moe", "qwen3moe"}) {
    const TemporaryModel file{TinyModel(architecture)};
    const model::Model model(file.path());
    ReferenceRunner whole(model, 100), pieces(model, 100);
    const std::span<const float> expected = whole.forward(tokens, LogitsFor::All);
    std::vector<float> logits;
    for (size_t first = 0, n = 1; first < tokens.size(); first += n, ++n) {  // 1, 2, 3, ... tokens at once
      const size_t count = std::min(n, tokens.size() - first);
      const std::span<const float> part =
          pieces.forward(std::span(tokens).subspan(first, count), LogitsFor::All);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(std::ranges::equal(logits, expected)) << architecture;
    EXPECT_EQ(pieces.position(), 11);
  }
}

TEST(Reference, LogitsForNoneLastAndAll) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner runner(model, 100);
  const std::vector<Token> tokens = some_tokens(3);
  const std::span<const float> all = runner.forward(tokens, LogitsFor::All);
  const std::vector<float> last(all.end() - TinyModel::kVocab, all.end());
  EXPECT_EQ(all.size(), 3u * TinyModel::kVocab);
  runner.reset();
  EXPECT_TRUE(std::ranges::equal(runner.forward(tokens, LogitsFor::Last), last));
  runner.reset();
  EXPECT_TRUE(runner.forward(tokens, LogitsFor::None).empty());
  EXPECT_EQ(runner.position(), 3);
  EXPECT_TRUE(runner.forward({}, LogitsFor::Last).empty());
}

TEST(Reference, ResetForgetsEverything) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner fresh(model, 100), used(model, 100);
  const std::vector<Token> tokens = {40, 41, 2};
  const std::span<const float> view = fresh.forward(tokens, LogitsFor::All);
  const std::vector<float> expected(view.begin(), view.end());
  used.forward(some_tokens(9), LogitsFor::None);
  EXPECT_FALSE(std::ranges::equal(used.forward(tokens, LogitsFor::All), expected));  // the past matters
  used.reset();
  EXPECT_EQ(used.position(), 0);
  EXPECT_TRUE(std::ranges::equal(used.forward(tokens, LogitsFor::All), expected));
}

TEST(Reference, RewindsToAMark) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner runner(model, 100);
  runner.forward(some_tokens(9), LogitsFor::None);
  const std::unique_ptr<model::Mark> mark = runner.mark();
  const std::span<const float> logits = runner.forward(some_tokens(12), LogitsFor::All);
  const std::vector<float> expected(logits.begin(), logits.end());
  runner.rewind(*mark);
  EXPECT_EQ(runner.position(), 9);
  runner.forward(some_tokens(5), LogitsFor::None);
  runner.rewind(*mark);
  EXPECT_THAT(runner.forward(some_tokens(12), LogitsFor::All), ::testing::ElementsAreArray(expected));
}

TEST(Reference, RefusesWhatDoesNotFit) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  ReferenceRunner runner(model, 4);
  EXPECT_EQ(runner.capacity(), 4);
  EXPECT_THAT([&] { runner.forward(some_tokens(5), LogitsFor::None); },
              ThrowsMessage<Error>(HasSubstr("context of 4")));
  runner.forward(some_tokens(4), LogitsFor::None);
  EXPECT_THAT([&] { runner.forward(some_tokens(1), LogitsFor::None); },
              ThrowsMessage<Error>(HasSubstr("context of 4")));
  runner.reset();
  for (const Token bad : {-1, TinyModel::kVocab})
    EXPECT_THAT([&] { runner.forward(std::vector<Token>{bad}, LogitsFor::None); },
                ThrowsMessage<Error>(HasSubstr("outside the vocabulary of 48")));
}

}  // namespace
}  // namespace redlite::reference
