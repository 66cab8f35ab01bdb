#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quant/type.h"

namespace redlite::synth {

/// What a matrix does in the model; each role may have its own quant type.
enum class Role : uint8_t {
  ExpertGate,
  ExpertUp,
  ExpertDown,
  Shared,
  AttentionQ,
  AttentionK,
  AttentionV,
  AttentionOutput,
  DeltaQkv,  ///< attn_qkv, and ssm_in
  DeltaZ,
  DeltaOutput,
  DeltaBa,  ///< ssm_ba, or ssm_beta and ssm_alpha
  Embedding,
  Output,
  Router,
};
inline constexpr size_t kRoles = 15;

/// The quant type of every role in every layer.
class TypePlan {
 public:
  /// A mix by name (empty: "simple") with changes such as "experts=Q4_K,q=IQ2_XXS". Throws Error naming the
  /// mix, role or type that does not exist, with the list of those that do.
  TypePlan(std::string_view mix, std::string_view changes);

  quant::Type type(Role role, int layer, int n_layers) const;

 private:
  struct Choice {
    quant::Type usual;
    quant::Type ends;  ///< in the first eighth and the last tenth of the layers
  };
  std::array<Choice, kRoles> choices_;
};

std::vector<std::string> mix_names();

/// Names that --types knows: single roles and groups of them.
std::vector<std::string> role_names();

}  // namespace redlite::synth
