#include "gpu/lookahead.h"

#include <algorithm>

#include "base/error.h"

namespace redlite::gpu {
namespace {

/// Weight of the newest layer: the average remembers about two tokens.
constexpr double kNewest = 1.0 / 96;
/// Layers between two choices.
constexpr int kEvery = 12;

}  // namespace

Lookahead::Lookahead(int least, int most, Costs costs)
    : least_(least), most_(most), costs_(costs), window_(least) {
  RL_CHECK(least >= 1 && most >= least, "windows of {} to {}", least, most);
}

void Lookahead::observe(bool missed) {
  miss_rate_ += kNewest * ((missed ? 1.0 : 0.0) - miss_rate_);
  if (least_ == most_ || ++since_choice_ < kEvery) return;
  since_choice_ = 0;
  const double p = std::max(miss_rate_, 1e-4);
  double least_cost = 0, all_hit = 1;
  for (int w = 1; w <= most_; ++w) {
    all_hit *= 1 - p;
    const double layers = (1 - all_hit) / p;
    const double cost = (costs_.stop + costs_.skip * (w - layers)) / layers;
    if (w <= least_ || cost < least_cost) {
      least_cost = cost;
      window_ = w;
    }
  }
}

}  // namespace redlite::gpu
