#include "model/runner.h"

namespace redlite::model {
namespace {

/// The only sequence of a runner.
class OwnSequence final : public Sequence {
 public:
  explicit OwnSequence(Runner& runner) : runner_(runner) {}

  int position() const override { return runner_.position(); }
  int capacity() const override { return runner_.capacity(); }
  void reset() override { runner_.reset(); }
  std::unique_ptr<Mark> mark() const override { return runner_.mark(); }
  void rewind(const Mark& mark) override { runner_.rewind(mark); }

 private:
  Runner& runner_;
};

}  // namespace

std::unique_ptr<Mark> Sequence::load_mark(int /*position*/, std::span<const std::byte> /*bytes*/) const {
  RL_CHECK(false, "this runner's states cannot be loaded");
  return nullptr;
}

void Sequence::save_positions(int /*n*/, std::span<std::byte> /*out*/) const {
  RL_CHECK(false, "this runner's states cannot be saved");
}

void Sequence::load_positions(int /*n*/, std::span<const std::byte> /*bytes*/) {
  RL_CHECK(false, "this runner's states cannot be loaded");
}

std::unique_ptr<Sequence> Runner::make_sequence() {
  return std::make_unique<OwnSequence>(*this);
}

std::span<const float> Runner::forward_together(std::span<const Part> parts) {
  RL_CHECK(parts.size() == 1, "{} sequences in a runner of one", parts.size());
  return forward(parts[0].tokens, parts[0].which);
}

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
