#pragma once

#include <memory>

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

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::reference
