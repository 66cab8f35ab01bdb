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

// The coarsest rounding in what a stage computes, or a whole model.
enum class Rounding : uint8_t {
  Single,  ///< F32 and, in weights only, F16 and BF16
  Half,    ///< keys and values are kept in F16
  Eighth,  ///< quantised weights: their products take activations of 8 bits
};

Rounding rounding(std::initializer_list<quant::Type> types) {
  for (const quant::Type type : types)
    if (quant::info(type).block_values > 1) return Rounding::Eighth;
  return Rounding::Single;
}

Rounding rounding_of(const model::Model& model, Stage stage, int layer, const ParityOptions& options) {
  const model::Weights& w = model.weights();
  if (stage == Stage::Logits) return rounding({w.output.type});
  if (stage != Stage::MixerOutput && stage != Stage::FfnOutput) return Rounding::Single;
  const size_t l = static_cast<size_t>(layer);
  if (stage == Stage::FfnOutput) {
    const model::FfnWeights& f = w.layers[l].ffn;  // absent matrices are F32
    const model::ExpertLayer& e = model.experts()[l];
    return rounding({e.gate.type, e.up.type, e.down.type, f.shared_gate.type, f.shared_up.type,
                     f.shared_down.type, f.shared_gate_inp.type});
  }
  if (model.config().layers[l] == model::LayerKind::Attention) {
    const model::AttentionWeights& a = w.layers[l].attention;
    const Rounding products = rounding({a.q.type, a.k.type, a.v.type, a.output.type});
    return std::max(products, options.half_precision_kv ? Rounding::Half : Rounding::Single);
  }
  const model::DeltaNetWeights& d = w.layers[l].delta;
  return rounding({d.qkv.type, d.z.type, d.qkvz.type, d.ba.type, d.beta.type, d.alpha.type, d.output.type});
}

Rounding rounding_of(const model::Model& model, const ParityOptions& options) {
  Rounding coarsest = rounding_of(model, Stage::Logits, -1, options);
  for (int l = 0; l < model.config().n_layers; ++l)
    for (const Stage stage : {Stage::MixerOutput, Stage::FfnOutput})
      coarsest = std::max(coarsest, rounding_of(model, stage, l, options));
  return coarsest;
}

// docs/parity.md says where each bound comes from.
struct Bound {
  double worst, overall;
};

Bound local_bound(Stage stage, Rounding rounding) {
  switch (stage) {
    case Stage::Embedding:
    case Stage::RouterLogits:
    case Stage::ExpertIds:
    case Stage::ExpertWeights:
      return {0, 0};
    case Stage::LayerOutput:
      return {1e-6, 1e-6};
    case Stage::MixerInput:
    case Stage::FfnInput:
    case Stage::FinalNorm:
      return {1e-5, 1e-5};
    case Stage::MixerOutput:
      return rounding == Rounding::Eighth ? Bound{0.25, 0.03}
             : rounding == Rounding::Half ? Bound{5e-3, 2e-3}
                                          : Bound{1e-4, 1e-5};
    case Stage::FfnOutput:
      return rounding == Rounding::Eighth ? Bound{0.04, 0.02} : Bound{1e-5, 1e-5};
    case Stage::Logits:
      return rounding == Rounding::Eighth ? Bound{0.02, 0.01} : Bound{1e-5, 1e-5};
  }
  return {0, 0};
}

struct ModelBounds {
  Bound drift;
  double margin;  ///< of a near-tie
  double median_kl;
  double mean_kl;
};

ModelBounds model_bounds(Rounding rounding) {
  switch (rounding) {
    case Rounding::Single:
      return {{1e-2, 1e-3}, 1e-3, 1e-9, 1e-2};
    case Rounding::Half:
      return {{5e-2, 5e-3}, 1e-2, 1e-6, 1e-2};
    case Rounding::Eighth:
      return {{0.6, 0.12}, 0.15, 5e-3, 3e-2};
  }
  return {};
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

// Adds up how far apart the values of tokens are.
class Measuring {
 public:
  template <typename A>
  void add(std::span<const A> a, std::span<const float> b, int position) {
    double absolute = 0, difference = 0, size = 0;
    bool comparable = a.size() == b.size() && !a.empty();
    for (size_t i = 0; comparable && i < a.size(); ++i) {
      const double d = static_cast<double>(b[i]) - static_cast<double>(a[i]);
      comparable = std::isfinite(d);
      absolute = std::max(absolute, std::abs(d));
      difference += d * d;
      size += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    }
    if (!comparable) absolute = difference = std::numeric_limits<double>::infinity();
    difference_ += difference;
    size_ += size;
    result_.absolute = std::max(result_.absolute, absolute);
    const double relative = ratio(difference, size);
    if (relative <= result_.worst) return;
    result_.worst = relative;
    result_.position = position;
  }

  ErrorMeasure result(Bound bound) const {
    ErrorMeasure out = result_;
    out.overall = ratio(difference_, size_);
    out.worst_bound = bound.worst;
    out.overall_bound = bound.overall;
    return out;
  }

 private:
  // Of two vectors from the squares of their lengths.
  static double ratio(double difference, double size) {
    if (difference == 0) return 0;
    return size > 0 ? std::sqrt(difference / size) : std::numeric_limits<double>::infinity();
  }

  ErrorMeasure result_;
  double difference_ = 0, size_ = 0;
};

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
  Comparison(const model::Model& model, const ParityOptions& options)
      : model_(model), options_(options), bounds_(model_bounds(rounding_of(model, options))) {
    add(Stage::Embedding, -1);
    for (int l = 0; l < model.config().n_layers; ++l)
      for (const Stage stage : {Stage::MixerInput, Stage::MixerOutput, Stage::FfnInput, Stage::RouterLogits,
                                Stage::ExpertIds, Stage::ExpertWeights, Stage::FfnOutput, Stage::LayerOutput})
        add(stage, l);
    add(Stage::FinalNorm, -1);
    add(Stage::Logits, -1);
  }

  template <typename A>
  void local(Stage stage, int layer, int position, std::span<const A> right, std::span<const float> other) {
    entry(stage, layer).local.add(right, other, position);
  }

  void drift(const Recording& a, const Recording& b, int position) {
    const auto compare = [&](Stage stage, int layer) {
      entry(stage, layer).drift.add(a.at(stage, layer, position), b.at(stage, layer, position), position);
    };
    compare(Stage::Embedding, -1);
    bool same_experts = true;
    for (int l = 0; l < model_.config().n_layers; ++l) {
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
  struct Entry {
    Stage stage;
    int layer;
    Measuring local, drift;
  };

  void add(Stage stage, int layer) {
    index_[{stage, layer}] = entries_.size();
    entries_.push_back({stage, layer, {}, {}});
  }
  Entry& entry(Stage stage, int layer) { return entries_[index_.at({stage, layer})]; }

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
    // Rounding can explain a pair of experts that a and b put in a different order. One that moves past
    // others changes the ranks of all of them, which among themselves may be far apart and in the same order.
    const auto rank_of = [](std::span<const float> ids, float expert) {
      return std::ranges::find(ids, expert) - ids.begin();  // behind all ranks: not selected
    };
    const auto inverted = [&](float u, float v) {
      const auto in_a = rank_of(ids_a, u) - rank_of(ids_a, v), in_b = rank_of(ids_b, u) - rank_of(ids_b, v);
      return (in_a < 0 && in_b > 0) || (in_a > 0 && in_b < 0);
    };
    std::vector<float> selected(ids_a.begin(), ids_a.end());
    for (const float expert : ids_b)
      if (std::ranges::find(ids_a, expert) == ids_a.end()) selected.push_back(expert);
    for (size_t rank = 0; rank < std::min(ids_a.size(), ids_b.size()); ++rank) {
      const float ea = ids_a[rank], eb = ids_b[rank];
      if (ea == eb) continue;
      SelectionDifference d{.layer = layer, .position = position, .rank = static_cast<int>(rank)};
      d.expert_a = static_cast<int32_t>(ea);
      d.expert_b = static_cast<int32_t>(eb);
      int pairs = 0, ties = 0;
      for (const float u : {ea, eb}) {
        for (const float v : selected) {
          if (!inverted(u, v)) continue;
          const double margin = std::abs(logit(logits_a, u) - logit(logits_a, v));
          const double perturbation = std::max(std::abs(logit(logits_a, u) - logit(logits_b, u)),
                                               std::abs(logit(logits_a, v) - logit(logits_b, v)));
          ++pairs;
          ties += margin <= 2 * perturbation && margin <= bounds_.margin ? 1 : 0;
          if (margin <= d.margin) continue;
          d.margin = margin;
          d.perturbation = perturbation;
        }
      }
      d.near_tie = pairs > 0 && ties == pairs;
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
    for (const Entry& e : entries_) {
      StageError& s = report_.stages.emplace_back();
      s.stage = e.stage;
      s.layer = e.layer;
      s.local = e.local.result(local_bound(e.stage, rounding_of(model_, e.stage, e.layer, options_)));
      s.drift = e.drift.result(e.stage == Stage::Embedding || e.stage == Stage::ExpertIds ? Bound{0, 0}
                                                                                          : bounds_.drift);
      const std::string where = s.layer < 0 ? std::string(model::stage_name(s.stage))
                                            : fmt::format("layer {} {}", s.layer, model::stage_name(s.stage));
      const auto check = [&](std::string_view kind, const ErrorMeasure& m) {
        if (m.within_bounds()) return;
        failures.push_back(
            fmt::format("{}: {} error {:.3g} at position {} (bound {:.3g}), {:.3g} overall (bound {:.3g})",
                        where, kind, m.worst, m.position, m.worst_bound, m.overall, m.overall_bound));
      };
      check("local", s.local);
      check("drift", s.drift);
    }
    for (const SelectionDifference& d : report_.differences)
      if (!d.near_tie)
        failures.push_back(fmt::format(
            "layer {} position {} rank {}: expert {} against {}, which is no near-tie: margin {:.3g} "
            "(bound {:.3g}), perturbation {:.3g}",
            d.layer, d.position, d.rank, d.expert_a, d.expert_b, d.margin, bounds_.margin, d.perturbation));
    if (!(report_.median_kl <= bounds_.median_kl))
      failures.push_back(
          fmt::format("logits: median KL {:.3g} (bound {:.3g})", report_.median_kl, bounds_.median_kl));
    if (!(report_.mean_kl <= bounds_.mean_kl))
      failures.push_back(
          fmt::format("logits: mean KL {:.3g} (bound {:.3g})", report_.mean_kl, bounds_.mean_kl));
  }

  const model::Model& model_;
  const ParityOptions& options_;
  ModelBounds bounds_;
  ParityReport report_;
  std::vector<Entry> entries_;
  std::map<std::pair<Stage, int>, size_t> index_;
  std::vector<double> kl_;
  /// Layers above it look back at a token for which a and b ran different experts.
  int last_equal_layer_ = std::numeric_limits<int>::max();
};

}  // namespace

ParityReport compare(const model::Model& model, model::Runner& a, model::Runner& b,
                     std::span<const Token> tokens, const ParityOptions& options) {
  if (tokens.empty()) fail("there are no tokens to compare the runners on");
  Recording of_a, of_b;
  a.reset();
  a.set_tap(of_a.tap());
  b.reset();
  b.set_tap(of_b.tap());
  ReferenceRunner local(model, static_cast<int>(tokens.size()));
  Comparison comparison(model, options);
  local.set_override([&](Stage stage, int layer, int position, std::span<double> values) {
    const std::span<const float> other = of_b.at(stage, layer, position);
    comparison.local(stage, layer, position, std::span<const double>(values), other);
    if (other.size() == values.size()) std::ranges::copy(other, values.begin());
  });
  // The router's stages follow from b's FfnInput, which the override has put in place: they are equal bit
  // for bit or wrong.
  local.set_tap([&](Stage stage, int layer, int position, int, std::span<const float> values) {
    if (stage == Stage::RouterLogits || stage == Stage::ExpertIds || stage == Stage::ExpertWeights)
      comparison.local(stage, layer, position, values, of_b.at(stage, layer, position));
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
