#include "gpu/lookahead.h"

#include <algorithm>

#include "base/error.h"

namespace redlite::gpu {
namespace {

/// Weight of the newest layer: the averages remember about two tokens.
constexpr double kNewestLayer = 1.0 / 96;
/// Layers between two choices.
constexpr int kLayersBetweenChoices = 12;

void move_towards(double& average, double value) {
  average += kNewestLayer * (value - average);
}

}  // namespace

Lookahead::Lookahead(int least, int most, const Costs& costs)
    : least_(least), most_(most), costs_(costs), window_(least) {
  RL_CHECK(least >= 1 && most >= least, "windows of {} to {}", least, most);
}

void Lookahead::observe(const Outcome& outcome) {
  const bool without = outcome.missed || outcome.prefetched;
  move_towards(without_, without ? 1 : 0);
  if (without && window_ == 1) move_towards(kept_, outcome.missed ? 1 : 0);
  miss_rate_ = without_ * kept_;
  if (outcome.missed) move_towards(waited_, outcome.waited);
  if (least_ == most_ || ++since_choice_ < kLayersBetweenChoices) return;
  since_choice_ = 0;

  double least_cost = 0, all_hit = 1;
  const double p = std::max(without_, 1e-4), wait = costs_.load + waited_;
  for (int w = 1; w <= most_; ++w) {
    all_hit *= 1 - p;
    const double layers = (1 - all_hit) / p;
    const double cost = w == 1 ? costs_.decision + miss_rate_ * wait
                               : (costs_.decision + costs_.skip * (w - layers)) / layers + p * wait;
    if (w <= least_ || cost < least_cost) {
      least_cost = cost;
      window_ = w;
    }
  }
}

}  // namespace redlite::gpu
