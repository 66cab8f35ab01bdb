#include "reference/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "reference/reference_runner.h"

namespace redlite::reference {

using model::Stage;
using model::Token;

namespace {

// Tokens run and compared at once: bounds the memory for their intermediate values.
constexpr size_t kChunk = 64;

// docs/parity.md says where each of these comes from.
constexpr double kMarginCap = 0.25;
constexpr double kMedianKlBound = 2e-3;
constexpr double kMeanKlBound = 1e-2;

struct Bounds {
  double local, drift;
};

Bounds bounds(Stage stage) {
  switch (stage) {
    case Stage::Embedding:
      return {0, 0};
    case Stage::MixerInput:
      return {1e-5, 0.15};
    case Stage::MixerOutput:
      return {0.03, 0.15};
    case Stage::FfnInput:
      return {1e-5, 0.15};
    case Stage::RouterLogits:
      return {0, 0.15};
    case Stage::ExpertIds:
      return {0, 0};
    case Stage::ExpertWeights:
      return {0, 0.15};
    case Stage::FfnOutput:
      return {0.03, 0.15};
    case Stage::LayerOutput:
      return {1e-5, 0.15};
    case Stage::FinalNorm:
      return {1e-5, 0.15};
    case Stage::Logits:
      return {0.03, 0.15};
  }
  return {0, 0};
}

// What one runner tapped for some tokens.
class Recording {
 public:
  model::Tap tap() {
    return [this](Stage stage, int layer, int first_position, int width, std::span<const float> values) {
      RL_CHECK(width > 0 && values.size() % static_cast<size_t>(width) == 0, "{} values in rows of {}",
               values.size(), width);
      for (size_t t = 0; t < values.size() / static_cast<size_t>(width); ++t) {
        const auto row = values.subspan(t * static_cast<size_t>(width), static_cast<size_t>(width));
        values_[{stage, layer, first_position + static_cast<int>(t)}].assign(row.begin(), row.end());
      }
    };
  }
  /// Empty if the runner did not tap it.
  std::span<const float> at(Stage stage, int layer, int position) const {
    const auto found = values_.find({stage, layer, position});
    return found == values_.end() ? std::span<const float>() : std::span<const float>(found->second);
  }
  void clear() { values_.clear(); }

 private:
  std::map<std::tuple<Stage, int, int>, std::vector<float>> values_;
};

struct Distance {
  double absolute = 0, relative = 0;
};

// NaN and missing values give infinity.
template <typename A>
Distance distance_of(std::span<const A> a, std::span<const float> b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size() || a.empty()) return {kInfinity, kInfinity};
  double worst = 0, difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(b[i]) - static_cast<double>(a[i]);
    if (!std::isfinite(d)) return {kInfinity, kInfinity};
    worst = std::max(worst, std::abs(d));
    difference += d * d;
    size += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  if (difference == 0) return {};
  return {worst, size > 0 ? std::sqrt(difference / size) : kInfinity};
}

// KL(a || b) of the softmaxes, in nats.
double divergence(std::span<const float> a, std::span<const float> b) {
  const auto log_sum = [](std::span<const float> x) {
    const double largest = *std::ranges::max_element(x);
    double sum = 0;
    for (const float v : x) sum += std::exp(v - largest);
    return largest + std::log(sum);
  };
  const double total_a = log_sum(a), total_b = log_sum(b);
  double kl = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_a = a[i] - total_a, log_b = b[i] - total_b;
    kl += std::exp(log_a) * (log_a - log_b);
  }
  return kl;
}

// The comparison under way: the report, and what the tokens so far leave for the next.
class Comparison {
 public:
  explicit Comparison(const model::Config& config) : config_(config) {
    add(Stage::Embedding, -1);
    for (int l = 0; l < config.n_layers; ++l)
      for (const Stage stage : {Stage::MixerInput, Stage::MixerOutput, Stage::FfnInput, Stage::RouterLogits,
                                Stage::ExpertIds, Stage::ExpertWeights, Stage::FfnOutput, Stage::LayerOutput})
        add(stage, l);
    add(Stage::FinalNorm, -1);
    add(Stage::Logits, -1);
  }

  void local(Stage stage, int layer, int position, Distance distance) {
    StageError& entry = stage_error(stage, layer);
    entry.local_absolute = std::max(entry.local_absolute, distance.absolute);
    if (distance.relative <= entry.local_relative) return;
    entry.local_relative = distance.relative;
    entry.local_position = position;
  }

  void drift(const Recording& a, const Recording& b, int position) {
    const auto compare = [&](Stage stage, int layer) {
      const Distance distance = distance_of(a.at(stage, layer, position), b.at(stage, layer, position));
      StageError& entry = stage_error(stage, layer);
      entry.drift_absolute = std::max(entry.drift_absolute, distance.absolute);
      if (distance.relative <= entry.drift_relative) return;
      entry.drift_relative = distance.relative;
      entry.drift_position = position;
    };
    compare(Stage::Embedding, -1);
    bool same_experts = true;
    for (int l = 0; l < config_.n_layers; ++l) {
      if (l > last_equal_layer_) {
        same_experts = false;
        count_consequences(a, b, l, position);
        continue;
      }
      for (const Stage stage : {Stage::MixerInput, Stage::MixerOutput, Stage::FfnInput, Stage::RouterLogits})
        compare(stage, l);
      if (!same_selection(a, b, l, position)) {
        // From here on this token differs, and through the state of the layers above so will the next ones.
        last_equal_layer_ = l;
        same_experts = false;
        continue;
      }
      for (const Stage stage : {Stage::ExpertWeights, Stage::FfnOutput, Stage::LayerOutput})
        compare(stage, l);
    }
    if (same_experts) {
      compare(Stage::FinalNorm, -1);
      compare(Stage::Logits, -1);
    }
    logits(a.at(Stage::Logits, -1, position), b.at(Stage::Logits, -1, position));
  }

  ParityReport finish(int n_tokens) {
    report_.n_tokens = n_tokens;
    std::ranges::sort(kl_);
    report_.median_kl = kl_[kl_.size() / 2];
    report_.max_kl = kl_.back();
    for (const double kl : kl_) report_.mean_kl += kl / static_cast<double>(kl_.size());
    judge();
    return std::move(report_);
  }

 private:
  void add(Stage stage, int layer) {
    index_[{stage, layer}] = report_.stages.size();
    StageError& entry = report_.stages.emplace_back(StageError{.stage = stage, .layer = layer});
    entry.local_bound = bounds(stage).local;
    entry.drift_bound = bounds(stage).drift;
  }
  StageError& stage_error(Stage stage, int layer) { return report_.stages[index_.at({stage, layer})]; }

  void count_consequences(const Recording& a, const Recording& b, int layer, int position) {
    const std::span<const float> ids_a = a.at(Stage::ExpertIds, layer, position);
    const std::span<const float> ids_b = b.at(Stage::ExpertIds, layer, position);
    for (size_t rank = 0; rank < std::min(ids_a.size(), ids_b.size()); ++rank)
      report_.consequences += ids_a[rank] != ids_b[rank] ? 1 : 0;
  }

  bool same_selection(const Recording& a, const Recording& b, int layer, int position) {
    const std::span<const float> ids_a = a.at(Stage::ExpertIds, layer, position);
    const std::span<const float> ids_b = b.at(Stage::ExpertIds, layer, position);
    const std::span<const float> logits_a = a.at(Stage::RouterLogits, layer, position);
    const std::span<const float> logits_b = b.at(Stage::RouterLogits, layer, position);
    const auto logit = [](std::span<const float> logits, float expert) -> double {
      return expert >= 0 && expert < static_cast<float>(logits.size())
                 ? logits[static_cast<size_t>(expert)]
                 : std::numeric_limits<double>::quiet_NaN();
    };
    for (size_t rank = 0; rank < std::min(ids_a.size(), ids_b.size()); ++rank) {
      const float ea = ids_a[rank], eb = ids_b[rank];
      if (ea == eb) continue;
      SelectionDifference d{.layer = layer, .position = position, .rank = static_cast<int>(rank)};
      d.expert_a = static_cast<int32_t>(ea);
      d.expert_b = static_cast<int32_t>(eb);
      d.margin = std::abs(logit(logits_a, ea) - logit(logits_a, eb));
      d.perturbation = std::max(std::abs(logit(logits_a, ea) - logit(logits_b, ea)),
                                std::abs(logit(logits_a, eb) - logit(logits_b, eb)));
      d.near_tie = d.margin <= 2 * d.perturbation && d.margin <= kMarginCap;
      report_.differences.push_back(d);
    }
    return std::ranges::equal(ids_a, ids_b);
  }

  void logits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size() || a.empty()) {
      kl_.push_back(std::numeric_limits<double>::infinity());
      return;
    }
    const double kl = divergence(a, b);
    kl_.push_back(std::isfinite(kl) ? kl : std::numeric_limits<double>::infinity());
    report_.top1_equal +=
        std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin() ? 1 : 0;
  }

  void judge() {
    std::vector<std::string>& failures = report_.failures;
    for (const StageError& s : report_.stages) {
      const std::string where = s.layer < 0 ? std::string(model::stage_name(s.stage))
                                            : fmt::format("layer {} {}", s.layer, model::stage_name(s.stage));
      if (!(s.local_relative <= s.local_bound))
        failures.push_back(fmt::format("{}: local relative error {:.3g} at position {}, bound {:.3g}", where,
                                       s.local_relative, s.local_position, s.local_bound));
      if (!(s.drift_relative <= s.drift_bound))
        failures.push_back(fmt::format("{}: drift {:.3g} at position {}, bound {:.3g}", where,
                                       s.drift_relative, s.drift_position, s.drift_bound));
    }
    for (const SelectionDifference& d : report_.differences)
      if (!d.near_tie)
        failures.push_back(fmt::format(
            "layer {} position {} rank {}: expert {} against {}, which is no near-tie: margin {:.3g}, "
            "perturbation {:.3g}, cap {}",
            d.layer, d.position, d.rank, d.expert_a, d.expert_b, d.margin, d.perturbation, kMarginCap));
    if (!(report_.median_kl <= kMedianKlBound))
      failures.push_back(
          fmt::format("logits: median KL {:.3g}, bound {:.3g}", report_.median_kl, kMedianKlBound));
    if (!(report_.mean_kl <= kMeanKlBound))
      failures.push_back(fmt::format("logits: mean KL {:.3g}, bound {:.3g}", report_.mean_kl, kMeanKlBound));
  }

  const model::Config& config_;
  ParityReport report_;
  std::map<std::pair<Stage, int>, size_t> index_;
  std::vector<double> kl_;
  /// Layers above it look back at a token for which a and b ran different experts.
  int last_equal_layer_ = std::numeric_limits<int>::max();
};

}  // namespace

ParityReport compare(const model::Model& model, model::Runner& a, model::Runner& b,
                     std::span<const Token> tokens) {
  if (tokens.empty()) fail("there are no tokens to compare the runners on");
  Recording of_a, of_b;
  a.reset();
  a.set_tap(of_a.tap());
  b.reset();
  b.set_tap(of_b.tap());
  ReferenceRunner local(model, static_cast<int>(tokens.size()));
  Comparison comparison(model.config());
  local.set_override([&](Stage stage, int layer, int position, std::span<double> values) {
    const std::span<const float> other = of_b.at(stage, layer, position);
    comparison.local(stage, layer, position, distance_of(std::span<const double>(values), other));
    if (other.size() == values.size()) std::ranges::copy(other, values.begin());
  });
  // The router's stages follow from b's FfnInput, which the override has put in place: they are equal bit
  // for bit or wrong.
  local.set_tap([&](Stage stage, int layer, int position, int, std::span<const float> values) {
    if (stage == Stage::RouterLogits || stage == Stage::ExpertIds || stage == Stage::ExpertWeights)
      comparison.local(stage, layer, position, distance_of(values, of_b.at(stage, layer, position)));
  });

  for (size_t first = 0; first < tokens.size(); first += kChunk) {
    const std::span<const Token> chunk = tokens.subspan(first, std::min(kChunk, tokens.size() - first));
    of_a.clear();
    of_b.clear();
    a.forward(chunk, model::LogitsFor::All);
    b.forward(chunk, model::LogitsFor::All);
    local.forward(chunk, model::LogitsFor::All);
    for (size_t i = 0; i < chunk.size(); ++i) comparison.drift(of_a, of_b, static_cast<int>(first + i));
  }
  a.set_tap(nullptr);
  b.set_tap(nullptr);
  return comparison.finish(static_cast<int>(tokens.size()));
}

}  // namespace redlite::reference
