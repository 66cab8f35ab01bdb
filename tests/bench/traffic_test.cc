#include "bench/traffic.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/temporary_model.h"

namespace redlite::bench {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;

// Everything in a tiny model is F32, so its sizes can be counted by hand.
TEST(Traffic, CountsEveryDenseByteOfTheFileOnce) {
  for (const char* architecture : {"qwen3next", "qwen35moe", "qwen3moe"}) {
    for (const bool tied : {false, true}) {
      for (const bool ssm_in : {false, true}) {
        TinyModel tiny(architecture);
        if (tied) tiny.tie_output();
        if (ssm_in && std::string_view(architecture) == "qwen3next") tiny.use_ssm_in(0);
        const TemporaryModel file(tiny);
        const model::Model model(file.path());
        const Traffic traffic(model, 4);
        // Of an embedding that is not the output, a pass reads single rows only.
        const uint64_t embedding = tied ? 0 : model.weights().token_embd.bytes();
        EXPECT_EQ(traffic.dense() + embedding, model.dense_bytes()) << architecture << tied << ssm_in;
        uint64_t experts = 0;
        for (int layer = 0; layer < TinyModel::kLayers; ++layer)
          experts += traffic.expert(layer) * TinyModel::kExperts;
        EXPECT_EQ(experts, model.expert_bytes());
      }
    }
  }
}

TEST(Traffic, OfATokenGrowsWithItsPositionByKeysAndValuesOnly) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  const Traffic traffic(model, 2);
  const auto attention_layers = static_cast<uint64_t>(
      std::count(model.config().layers.begin(), model.config().layers.end(), model::LayerKind::Attention));
  EXPECT_EQ(traffic.kv_per_position(), attention_layers * 2 * TinyModel::kKvHeads * TinyModel::kHeadDim * 2);
  EXPECT_EQ(traffic.decode(100) - traffic.decode(0), 100 * traffic.kv_per_position());

  const uint64_t state = (TinyModel::kLayers - attention_layers) * 4 *
                         (TinyModel::kVHeads * TinyModel::kStateDim * TinyModel::kStateDim +
                          (TinyModel::kConvKernel - 1) * TinyModel::kConvDim);
  EXPECT_EQ(traffic.recurrent_state(), 2 * state) << "read and written";
  uint64_t experts = 0;
  for (int layer = 0; layer < TinyModel::kLayers; ++layer)
    experts += traffic.expert(layer) * TinyModel::kExpertsUsed;
  EXPECT_EQ(traffic.decode(0),
            traffic.dense() + 4 * TinyModel::kEmbd + 2 * state + experts + traffic.kv_per_position());
}

TEST(Traffic, OfAChunkHoldsEachExpertOnce) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  const Traffic traffic(model, 4);
  const std::vector<int> few(TinyModel::kLayers, TinyModel::kExpertsUsed);
  std::vector<int> more = few;
  more[2] += 2;
  EXPECT_EQ(traffic.pass(7, 1, few), traffic.decode(7));
  EXPECT_EQ(traffic.pass(7, 1, more) - traffic.pass(7, 1, few), 2 * traffic.expert(2));
  EXPECT_EQ(traffic.pass(0, 5, few) - traffic.pass(0, 1, few),
            4 * (4 * TinyModel::kEmbd + traffic.kv_per_position()));
}

}  // namespace
}  // namespace redlite::bench
