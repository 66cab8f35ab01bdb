#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "synth/shape.h"

namespace redlite::synth {

/// Columns of one group; the largest quant block, so that a group can have its own scale in every type.
inline constexpr int kGroup = 256;

/// What decides how a synthetic model behaves; docs/synthetic-models.md tells how each was chosen.
/// Energies are mean squares of the residual stream, relative to that of the token groups' embedding.
struct Knobs {
  float embedding_rms = 0.1f;       ///< of the token groups
  float common_energy = 1.0f;       ///< of the embedding in the common group, which all tokens share
  float context_energy = 0.05f;     ///< of the embedding in the context groups
  float context_first = 1.0f;       ///< what the first layer's mixer adds to the context groups
  float context_rate = 0.036f;      ///< what each later mixer adds to them, relative to what is there
  float context_ffn_rate = 0.005f;  ///< what each layer's experts add to them, relative to what is there
  float token_rate = 0.034f;        ///< what each layer adds to the token groups, relative to what is there
  float mixer_share = 0.12f;        ///< of that, from attention and DeltaNet; the rest from the experts
  float router_deviation = 1.5f;    ///< standard deviation of the router's logits
  float router_popularity = 0.2f;  ///< share of their variance from the common group: the same for all tokens
  float router_context = 0.67f;    ///< ... from the context groups: slow; the rest is the token's own
  float query_common = 0.97f;  ///< share of the common group in DeltaNet's q and z, so that reading is steady
  float value_common = 0.05f;  ///< share of the common group in DeltaNet's v: what is the same in all tokens
  float conv_size =
      0.35f;  ///< of the convolution before DeltaNet, which would keep the size of its input at 1
  float memory_shortest = 30;    ///< tokens after which a DeltaNet head's memory has decayed to 1/e: the
  float memory_longest = 300;    ///< range over the heads
  float output_context = 0.06f;  ///< share of the context groups in the output's logits
};

/// The knobs a shape is written with.
Knobs choose_knobs(const Shape& shape);

/// The knobs as metadata: names and values.
std::vector<std::pair<std::string_view, float>> knob_values(const Knobs& knobs);

/// How strongly the residual stream is filled through the layers, by design, and the weights' standard
/// deviations that follow from it. The stream's columns fall into groups of 256 with three jobs: the first is
/// common to all tokens, the next are context (filled by the mixers), the rest the token's own. A model of
/// fewer than four groups has only the last kind.
class Profile {
 public:
  Profile(const Shape& shape, const Knobs& knobs);

  int groups() const { return n_groups_; }
  bool structured() const { return n_context_ > 0; }
  bool is_common(int group) const { return structured() && group == 0; }
  bool is_context(int group) const { return structured() && group >= 1 && group <= n_context_; }

  /// Standard deviation of the embedding in each group.
  std::vector<float> embedding() const;

  /// Where a matrix reads the normalised residual.
  struct Place {
    int layer;  ///< n_layers: behind the last
    bool ffn;   ///< the experts' input, not the mixer's
  };
  /// Column deviations for outputs of standard deviation `deviation`, with these shares of the variance from
  /// the common and the context groups. Without structure, or with negative shares: the same for all columns.
  std::vector<float> reading(Place place, float deviation, float common, float context) const;
  std::vector<float> reading(float deviation) const;

  /// For each group, the standard deviation of what a layer's mixer, or its experts, adds to the residual.
  std::vector<float> mixer_update(int layer) const;
  std::vector<float> ffn_update(int layer) const;

  const Knobs& knobs() const { return knobs_; }

 private:
  struct Energies {
    double common, context, token;
  };
  double energy(const Energies& e, int group) const;
  std::vector<float> update(const Energies& before, const Energies& after) const;
  const Energies& at(Place place) const;

  Knobs knobs_;
  int n_embd_;
  int n_groups_;
  int n_context_;
  std::vector<Energies> energies_;  ///< before mixer, before experts, ... of every layer, and behind the last
};

}  // namespace redlite::synth
