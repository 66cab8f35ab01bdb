#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quant/type.h"
#include "synth/profile.h"
#include "synth/random.h"
#include "synth/shape.h"
#include "synth/types.h"

namespace redlite::synth {

/// Consecutive rows of a matrix that are filled alike.
struct Band {
  uint64_t rows;
  /// Standard deviation for each group of kGroup columns, or one for all columns.
  std::vector<float> deviations;
};

/// A tensor to write.
struct TensorPlan {
  std::string name;
  std::vector<uint64_t> shape;  ///< GGUF order: row length first
  quant::Type type = quant::Type::F32;
  /// A matrix: its rows, band by band; the sequence is repeated for tensors of several matrices (experts).
  std::vector<Band> bands = {};
  /// Column groups that are the same in all rows (the embedding's common group).
  std::vector<bool> same_in_all_rows = {};
  /// A matrix in F32 whose values BF16 has, too.
  bool bf16_values = false;
  /// A short F32 tensor: its values by index. Without bands only.
  std::function<float(Random&, uint64_t)> value = {};

  uint64_t rows() const;
  uint64_t bytes() const;
};

/// The standard deviation of logits whose distribution over the text tokens has two thirds of the greatest
/// entropy: 0.8 sqrt(ln n), for the entropy of n such logits is about ln n - deviation^2 / 2.
float logit_deviation(const std::vector<bool>& text);

/// Every tensor of a model, in the order of the file. `text` tells for each token whether it is text; the
/// others get small logits, so that generation neither ends by chance nor shows padding.
/// Throws Error when a type's blocks do not fit a tensor's rows.
std::vector<TensorPlan> plan_tensors(const Shape& shape, const Layout& layout, const TypePlan& types,
                                     const Profile& profile, const std::vector<bool>& text);

}  // namespace redlite::synth
