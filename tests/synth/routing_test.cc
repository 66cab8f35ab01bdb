// The routing of a synthetic model is like a real one's: measured on the preset that has an 80B's experts in
// number and use, with the engine's own pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "cpu/cpu_runner.h"
#include "experts/layout.h"
#include "experts/pool.h"
#include "model/model.h"
#include "model/router.h"
#include "synth/synth.h"

namespace redlite::synth {
namespace {

// 4 GiB of the 16.9 GiB of experts in the published 80B file.
constexpr double kCacheShare = 0.2365;
constexpr int kTokens = 240;
constexpr int kWarm = 80;

class Measure {
 public:
  explicit Measure(const model::Model& m)
      : model_(m), pool_(make_pool(m)), predicted_(static_cast<size_t>(m.config().n_layers)) {}

  void operator()(model::Stage stage, int layer, int position, std::span<const float> values) {
    const model::Config& c = model_.config();
    if (stage == model::Stage::FfnInput && layer + 1 < c.n_layers)
      predicted_[static_cast<size_t>(layer) + 1] = predict(layer + 1, values);
    if (stage == model::Stage::RouterLogits) {
      std::vector<float> sorted(values.begin(), values.end());
      std::sort(sorted.rbegin(), sorted.rend());
      const size_t k = static_cast<size_t>(c.n_experts_used);
      margins.push_back(sorted[k - 1] - sorted[k]);
    }
    if (stage != model::Stage::ExpertIds) return;
    const std::vector<int32_t> ids(values.begin(), values.end());
    experts::Plan plan = pool_.acquire(layer, ids);
    for (const experts::PlanEntry& e : plan.entries) {
      if (position < kWarm) continue;
      ++selections;
      hits += e.hit;
      used.insert(e.key.expert);
      if (layer == 0) continue;
      ++predictions;
      const std::vector<int32_t>& guess = predicted_[static_cast<size_t>(layer)];
      right += std::find(guess.begin(), guess.end(), e.key.expert) != guess.end();
    }
    pool_.release(plan);
  }

  double selections = 0, hits = 0, predictions = 0, right = 0;
  std::vector<float> margins;
  std::set<int32_t> used;

 private:
  static experts::ExpertPool make_pool(const model::Model& m) {
    const experts::ExpertFiles files = experts::expert_files(m);
    const experts::SizeClasses sizes = experts::size_classes(files);
    const auto bytes = static_cast<uint64_t>(kCacheShare * static_cast<double>(sizes.full_bytes()));
    return {sizes.class_of_layer, files.n_experts, experts::divide(sizes, files.n_experts_used, bytes)};
  }

  std::vector<int32_t> predict(int layer, std::span<const float> input) const {
    const model::Matrix& router = model_.weights().layers[static_cast<size_t>(layer)].ffn.router;
    std::vector<float> logits(static_cast<size_t>(router.rows));
    for (int e = 0; e < router.rows; ++e)
      logits[static_cast<size_t>(e)] =
          model::router_logit(reinterpret_cast<const float*>(router.row(e)), input.data(), router.cols);
    std::vector<int32_t> ids(static_cast<size_t>(model_.config().n_experts_used));
    std::vector<float> weights(ids.size());
    model::select_experts(logits, 1, ids, weights);
    return ids;
  }

  const model::Model& model_;
  experts::ExpertPool pool_;
  std::vector<std::vector<int32_t>> predicted_;
};

TEST(Routing, HitsAndPredictionsAreLikeARealModels) {
  const std::string path = ::testing::TempDir() + "synth_routing.gguf";
  std::filesystem::remove(path);
  write_model(path, {.preset = "small"});
  {
    const model::Model m(path);
    cpu::CpuOptions options;
    options.context = kTokens;
    options.batch = 1;
    cpu::CpuRunner runner(m, options);
    Measure measure(m);
    runner.set_tap([&](model::Stage stage, int layer, int position, int, std::span<const float> values) {
      measure(stage, layer, position, values);
    });
    std::set<model::Token> distinct;
    model::Token token = 300;
    for (int i = 0; i < kTokens; ++i) {
      distinct.insert(token);
      const std::span<const float> logits = runner.forward({&token, 1}, model::LogitsFor::Last);
      token = static_cast<model::Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    EXPECT_GT(distinct.size(), size_t{kTokens} / 2) << "greedy text runs in a circle";
    const double hit_rate = measure.hits / measure.selections;
    const double right = measure.right / measure.predictions;
    RecordProperty("hit_rate", std::to_string(hit_rate));
    RecordProperty("predictions_right", std::to_string(right));
    EXPECT_GT(hit_rate, 0.87);
    EXPECT_LT(hit_rate, 0.93);
    EXPECT_GT(right, 0.75);
    EXPECT_LT(right, 0.86);
    EXPECT_GT(measure.used.size(), 256u) << "a few experts do everything";
    std::sort(measure.margins.begin(), measure.margins.end());
    EXPECT_GT(measure.margins[measure.margins.size() / 2], 0.02) << "selections hang on near-ties";
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace redlite::synth
