#include "synth/types.h"

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"
#include "synth/split.h"

namespace redlite::synth {

namespace {

using quant::Type;

struct RoleName {
  std::string_view name;
  std::vector<Role> roles;
};

const std::vector<RoleName>& role_table() {
  using enum Role;
  static const std::vector<RoleName> table = {
      {"all",
       {ExpertGate, ExpertUp, ExpertDown, Shared, AttentionQ, AttentionK, AttentionV, AttentionOutput,
        DeltaQkv, DeltaZ, DeltaOutput, Embedding, Output}},
      {"experts", {ExpertGate, ExpertUp, ExpertDown}},
      {"expert-gate", {ExpertGate}},
      {"expert-up", {ExpertUp}},
      {"expert-down", {ExpertDown}},
      {"shared", {Shared}},
      {"attention", {AttentionQ, AttentionK, AttentionV, AttentionOutput}},
      {"q", {AttentionQ}},
      {"k", {AttentionK}},
      {"v", {AttentionV}},
      {"attention-output", {AttentionOutput}},
      {"deltanet", {DeltaQkv, DeltaZ, DeltaOutput}},
      {"qkv", {DeltaQkv}},
      {"z", {DeltaZ}},
      {"ssm-out", {DeltaOutput}},
      {"ba", {DeltaBa}},
      {"embedding", {Embedding}},
      {"output", {Output}},
      {"router", {Router}},
  };
  return table;
}

struct Mix {
  std::string_view name;
  std::string_view changes;      // from Q4_K everywhere, router and ba F32
  std::string_view expert_ends;  // type of the experts in the first and last layers, if another
};

// `published` is the layout of the Qwen3-Next-80B file in IQ2_XXS (docs/synthetic-models.md); the embedding
// of `simple` is F16 as in files made without an importance matrix for it.
constexpr Mix kMixes[] = {
    {"published", "experts=IQ1_M,qkv=IQ2_XXS,z=IQ2_XXS,q=IQ2_XXS,shared=Q6_K,embedding=Q2_K,output=Q5_K",
     "IQ2_XS"},
    {"simple", "experts=IQ2_XXS,embedding=F16,output=Q5_K", ""},
    {"iq3_xxs", "experts=IQ3_XXS,embedding=IQ3_S,output=Q5_K", ""},
    {"q4_k", "output=Q5_K", ""},
};

const RoleName& find_role(std::string_view name) {
  for (const RoleName& r : role_table())
    if (r.name == name) return r;
  fail("role {} is unknown; there are {}", quote(name), fmt::join(role_names(), ", "));
}

Type find_type_named(std::string_view name) {
  const quant::TypeInfo* info = quant::find_type(name);
  if (!info) fail("type {} is unknown; there are {}", quote(name), quant::supported_types());
  return info->type;
}

}  // namespace

TypePlan::TypePlan(std::string_view mix, std::string_view changes) {
  const auto set = [&](std::string_view role, Type usual, Type ends) {
    for (const Role r : find_role(role).roles) choices_[static_cast<size_t>(r)] = {usual, ends};
  };
  const auto apply = [&](std::string_view text) {
    for (const std::string_view change : split(text, ',')) {
      const size_t equals = change.find('=');
      if (equals == std::string_view::npos)
        fail("{} is not of the form role=TYPE; roles are {}", quote(change), fmt::join(role_names(), ", "));
      const Type type = find_type_named(change.substr(equals + 1));
      set(change.substr(0, equals), type, type);
    }
  };
  const std::string_view wanted = mix.empty() ? "simple" : mix;
  const auto* found =
      std::find_if(std::begin(kMixes), std::end(kMixes), [&](const Mix& m) { return m.name == wanted; });
  if (found == std::end(kMixes))
    fail("mix {} is unknown; there are {}", quote(mix), fmt::join(mix_names(), ", "));
  choices_.fill({Type::Q4_K, Type::Q4_K});
  set("router", Type::F32, Type::F32);
  set("ba", Type::F32, Type::F32);
  apply(found->changes);
  if (!found->expert_ends.empty())
    set("experts", choices_[static_cast<size_t>(Role::ExpertGate)].usual,
        find_type_named(found->expert_ends));
  apply(changes);
}

Type TypePlan::type(Role role, int layer, int n_layers) const {
  const Choice& choice = choices_[static_cast<size_t>(role)];
  const bool end = layer < n_layers / 8 || layer >= n_layers - std::max(1, n_layers * 5 / 48);
  return end ? choice.ends : choice.usual;
}

std::vector<std::string> mix_names() {
  std::vector<std::string> names;
  for (const Mix& m : kMixes) names.emplace_back(m.name);
  return names;
}

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const RoleName& r : role_table()) names.emplace_back(r.name);
  return names;
}

}  // namespace redlite::synth
