#include "synth/profile.h"

#include <cmath>

namespace redlite::synth {

namespace {

// Groups a model needs before they can have different jobs.
constexpr int kStructuredGroups = 4;

int count_groups(const Shape& shape) {
  return (shape.n_embd + kGroup - 1) / kGroup;
}

}  // namespace

Knobs choose_knobs(const Shape& shape) {
  Knobs knobs;
  // The few layers of the smallest models have to matter, too, and so has forgetting in a short test.
  if (count_groups(shape) < kStructuredGroups) {
    knobs.token_rate = 0.19f;
    knobs.mixer_share = 0.5f;
    knobs.conv_size = 1;
    knobs.memory_shortest = 2;
  }
  return knobs;
}

std::vector<std::pair<std::string_view, float>> knob_values(const Knobs& k) {
  return {{"embedding_rms", k.embedding_rms},
          {"common_energy", k.common_energy},
          {"context_energy", k.context_energy},
          {"context_first", k.context_first},
          {"context_rate", k.context_rate},
          {"context_ffn_rate", k.context_ffn_rate},
          {"token_rate", k.token_rate},
          {"mixer_share", k.mixer_share},
          {"router_deviation", k.router_deviation},
          {"router_popularity", k.router_popularity},
          {"router_context", k.router_context},
          {"query_common", k.query_common},
          {"value_common", k.value_common},
          {"conv_size", k.conv_size},
          {"memory_shortest", k.memory_shortest},
          {"memory_longest", k.memory_longest},
          {"output_context", k.output_context}};
}

Profile::Profile(const Shape& shape, const Knobs& knobs)
    : knobs_(knobs),
      n_embd_(shape.n_embd),
      n_groups_(count_groups(shape)),
      n_context_(n_groups_ >= kStructuredGroups ? n_groups_ / 4 : 0) {
  const double rate = knobs.token_rate;
  Energies e{knobs.common_energy, knobs.context_energy, 1};
  energies_.push_back(e);
  for (int l = 0; l < shape.n_layers; ++l) {
    e.token *= 1 + rate * knobs.mixer_share;
    e.context += l == 0 ? knobs.context_first : knobs.context_rate * e.context;
    energies_.push_back(e);
    e.token *= 1 + rate * (1 - knobs.mixer_share);
    e.context *= 1 + knobs.context_ffn_rate;
    energies_.push_back(e);
  }
}

double Profile::energy(const Energies& e, int group) const {
  return is_common(group) ? e.common : is_context(group) ? e.context : e.token;
}

const Profile::Energies& Profile::at(Place place) const {
  return energies_[static_cast<size_t>(2 * place.layer + (place.ffn ? 1 : 0))];
}

std::vector<float> Profile::embedding() const {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(n_groups_));
  for (int g = 0; g < n_groups_; ++g)
    out.push_back(knobs_.embedding_rms * static_cast<float>(std::sqrt(energy(energies_[0], g))));
  if (!structured()) out.resize(1);
  return out;
}

std::vector<float> Profile::reading(float deviation) const {
  return {deviation / std::sqrt(static_cast<float>(n_embd_))};
}

std::vector<float> Profile::reading(Place place, float deviation, float common, float context) const {
  if (!structured()) return reading(deviation);
  const Energies& e = at(place);
  const int n_token = n_groups_ - 1 - n_context_;
  const double mean = (e.common + n_context_ * e.context + n_token * e.token) / n_groups_;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(n_groups_));
  for (int g = 0; g < n_groups_; ++g) {
    const double share = is_common(g)    ? common
                         : is_context(g) ? double{context} / n_context_
                                         : (1.0 - common - context) / n_token;
    out.push_back(deviation * static_cast<float>(std::sqrt(share * mean / (kGroup * energy(e, g)))));
  }
  return out;
}

std::vector<float> Profile::update(const Energies& before, const Energies& after) const {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(n_groups_));
  for (int g = 0; g < n_groups_; ++g) {
    // The common group is left almost alone.
    const double added = is_common(g) ? 1e-3 * before.common : energy(after, g) - energy(before, g);
    out.push_back(knobs_.embedding_rms * static_cast<float>(std::sqrt(added)));
  }
  if (!structured()) out.resize(1);
  return out;
}

std::vector<float> Profile::mixer_update(int layer) const {
  return update(at({layer, false}), at({layer, true}));
}

std::vector<float> Profile::ffn_update(int layer) const {
  return update(at({layer, true}), at({layer + 1, false}));
}

}  // namespace redlite::synth
