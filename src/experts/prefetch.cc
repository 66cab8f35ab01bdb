#include "experts/prefetch.h"

#include <algorithm>

namespace redlite::experts {
namespace {

/// Weight of the newest observation: the average remembers about 64 of them.
constexpr double kNewest = 1.0 / 64;

/// A rank is loaded while at least this share of its predictions comes true. A wrong load costs little where
/// the disk would be idle, but it evicts an expert and may delay the next read that is needed.
constexpr double kLeastPrecision = 0.25;

}  // namespace

PrefetchPlan::PrefetchPlan(int n_experts_used, int most_layers)
    : precision_(static_cast<size_t>(n_experts_used), 1.0), most_layers_(static_cast<size_t>(most_layers)) {}

void PrefetchPlan::predict(int layer, std::span<const Candidate> missing) {
  layer_ = layer;
  if (predictions_.size() == most_layers_) predictions_.pop_front();
  predictions_.push_back({layer, {missing.begin(), missing.end()}});
  waiting_.clear();
  for (const Candidate& c : missing) {
    if (precision(c.rank) >= kLeastPrecision) waiting_.push_back(c.expert);
  }
}

void PrefetchPlan::acquired(int layer, std::span<const int32_t> experts) {
  const auto prediction = std::ranges::find(predictions_, layer, &Prediction::layer);
  if (prediction == predictions_.end()) return;
  for (const Candidate& c : prediction->missing) {
    const bool came_true = std::find(experts.begin(), experts.end(), c.expert) != experts.end();
    double& average = precision_[static_cast<size_t>(c.rank)];
    average += kNewest * ((came_true ? 1.0 : 0.0) - average);
  }
  predictions_.erase(prediction);
  if (layer != layer_) return;
  layer_ = -1;
  waiting_.clear();
}

std::optional<ExpertKey> PrefetchPlan::next() {
  if (waiting_.empty()) return std::nullopt;
  const ExpertKey key{layer_, waiting_.front()};
  waiting_.pop_front();
  return key;
}

}  // namespace redlite::experts
