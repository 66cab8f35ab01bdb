#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "model/model.h"
#include "model/runner.h"

namespace redlite::reference {

/// The model in double precision, as plain as a textbook: the specification that every other runner is
/// compared with. Weights are decoded exactly; the router's logits are computed in F32 in the order that
/// model/router.h defines, from the F32 rounding of its input. Slow on purpose.
class ReferenceRunner final : public model::Runner {
 public:
  /// `context`: tokens the state can hold.
  ReferenceRunner(const model::Model& model, int context);
  ~ReferenceRunner() override;

  std::span<const float> forward(std::span<const model::Token> tokens, model::LogitsFor which) override;
  int position() const override;
  int capacity() const override;
  void reset() override;
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;

  /// Called with the value of each stage as computed, which it may overwrite: computation goes on with what
  /// it leaves there. Fed with another runner's values, every stage is computed from that runner's own
  /// inputs, and a difference is that stage's alone. Not called for the router's stages, which follow from
  /// FfnInput.
  using Override = std::function<void(model::Stage stage, int layer, int position, std::span<double> values)>;
  void set_override(Override override_values) { override_ = std::move(override_values); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Override override_;
};

}  // namespace redlite::reference
