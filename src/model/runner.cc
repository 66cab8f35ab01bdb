#include "model/runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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

Token best_token(std::span<const float> logits) {
  // Piece by piece, so that only one is looked through for where its greatest is.
  constexpr size_t kPiece = 1024, kLanes = 16;
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  float max = kLeast;
  size_t best = 0;
  for (size_t first = 0; first < logits.size(); first += kPiece) {
    const std::span<const float> piece = logits.subspan(first, std::min(kPiece, logits.size() - first));
    std::array<float, kLanes> lanes;
    lanes.fill(kLeast);
    size_t i = 0;
    for (; i + kLanes <= piece.size(); i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] = piece[i + j] > lanes[j] ? piece[i + j] : lanes[j];
    }
    float here = *std::ranges::max_element(lanes);
    for (; i < piece.size(); ++i) here = piece[i] > here ? piece[i] : here;
    if (!(here > max)) continue;
    max = here;
    best = first;
  }
  if (!std::isfinite(max)) fail("the model's logits are not finite: its weights must be damaged");
  return static_cast<Token>(std::ranges::find(logits.subspan(best), max) - logits.begin());
}

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

Token Runner::forward_best(std::span<const Token> tokens) {
  return best_token(forward(tokens, LogitsFor::Last));
}

std::vector<Token> Runner::forward_best_together(std::span<const Part> parts) {
  std::vector<Part> last(parts.begin(), parts.end());
  for (Part& part : last) part.which = LogitsFor::Last;
  const std::span<const float> logits = forward_together(last);
  const size_t n_vocab = logits.size() / parts.size();
  std::vector<Token> tokens;
  for (size_t i = 0; i < parts.size(); ++i)
    tokens.push_back(best_token(logits.subspan(i * n_vocab, n_vocab)));
  return tokens;
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
