#include "trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cpu/cpu_runner.h"
#include "model/router.h"
#include "model/temporary_model.h"

namespace redlite::trace {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::ElementsAre;

TEST(Recorder, WritesDownSelectionsAndWhatTheNextRouterSays) {
  const TemporaryModel file{TinyModel("qwen3next")};
  const model::Model model(file.path());
  const model::Config& c = model.config();
  const std::vector<model::Token> tokens = {1, 5, 9, 2, 40, 7, 33};
  cpu::CpuOptions options;
  options.context = 16;
  cpu::CpuRunner runner(model, options);
  Recorder recorder(model);
  runner.set_tap(recorder.tap());
  runner.forward(std::span(tokens).first(4), model::LogitsFor::None);
  runner.forward(std::span(tokens).subspan(4, 1), model::LogitsFor::None);
  runner.forward(std::span(tokens).subspan(5, 1), model::LogitsFor::None);
  const Trace trace = recorder.finish(tokens);

  EXPECT_EQ(trace.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + 6));
  EXPECT_THAT(trace.chunks, ElementsAre(4u, 1u, 1u));
  EXPECT_EQ(trace.n_predicted, 6);
  EXPECT_EQ(trace.layers, layer_sizes(model));
  EXPECT_EQ(trace.layers[0].triplet_bytes, model.experts()[0].triplet_bytes());
  EXPECT_EQ(decode("t", encode(trace)), trace);

  // Token by token, by the definition of the router.
  options.batch = 1;
  cpu::CpuRunner again(model, options);
  again.set_tap([&](model::Stage stage, int layer, int position, int, std::span<const float> values) {
    const auto token = static_cast<size_t>(position);
    if (stage == model::Stage::ExpertIds) {
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(trace.experts(token, layer)[i], static_cast<uint16_t>(values[i])) << token << " " << layer;
    }
    if (stage != model::Stage::FfnInput || layer + 1 == c.n_layers) return;
    const model::Matrix& router = model.weights().layers[static_cast<size_t>(layer) + 1].ffn.router;
    std::vector<float> logits;
    for (int e = 0; e < c.n_experts; ++e)
      logits.push_back(
          model::router_logit(reinterpret_cast<const float*>(router.row(e)), values.data(), c.n_embd));
    std::vector<int32_t> ids(6);
    std::vector<float> weights(6);
    model::select_experts(logits, 1, ids, weights);
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(trace.prediction(token, layer + 1)[i], ids[i]) << token << " " << layer;
  });
  again.forward(trace.tokens, model::LogitsFor::None);
}

}  // namespace
}  // namespace redlite::trace
