#include "model/runner.h"

#include "base/error.h"

namespace redlite::model {

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::Embedding:
      return "embedding";
    case Stage::MixerInput:
      return "mixer_input";
    case Stage::MixerOutput:
      return "mixer_output";
    case Stage::FfnInput:
      return "ffn_input";
    case Stage::RouterLogits:
      return "router_logits";
    case Stage::ExpertIds:
      return "expert_ids";
    case Stage::ExpertWeights:
      return "expert_weights";
    case Stage::FfnOutput:
      return "ffn_output";
    case Stage::LayerOutput:
      return "layer_output";
    case Stage::FinalNorm:
      return "final_norm";
    case Stage::Logits:
      return "logits";
  }
  RL_CHECK(false, "stage {}", static_cast<int>(stage));
  return {};
}

}  // namespace redlite::model
