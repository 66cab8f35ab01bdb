#include "plan/reuse.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace redlite::plan {

UseRecorder::UseRecorder(model::Runner& runner, int n_layers)
    : runner_(runner), uses_(static_cast<size_t>(n_layers)) {
  runner_.set_tap(
      [this](model::Stage stage, int layer, int /*first*/, int width, std::span<const float> values) {
        if (stage != model::Stage::ExpertIds) return;
        auto& tokens = uses_[static_cast<size_t>(layer)];
        for (size_t at = 0; at < values.size(); at += static_cast<size_t>(width))
          tokens.emplace_back(values.begin() + static_cast<ptrdiff_t>(at),
                              values.begin() + static_cast<ptrdiff_t>(at) + width);
      });
}

double distinct_uses(const Uses& uses, size_t first, size_t last) {
  size_t sum = 0;
  for (const auto& tokens : uses) {
    std::set<int> experts;
    for (size_t t = first; t < last; ++t) experts.insert(tokens[t].begin(), tokens[t].end());
    sum += experts.size();
  }
  return static_cast<double>(sum) / static_cast<double>(uses.size());
}

std::vector<double> miss_curve(const Uses& uses, size_t first, int n_experts) {
  const auto n = static_cast<size_t>(n_experts);
  std::vector<double> reused(n + 1, 0);  // [d]: selections with d other experts since the last use
  double total = 0, seen = 0;
  for (const auto& tokens : uses) {
    RL_CHECK(first < tokens.size());
    std::vector<int> recent;  // the last used first
    for (size_t t = 0; t < tokens.size(); ++t) {
      // A cache looks for all of a token's experts before it gives a slot away for one of them.
      for (const int expert : tokens[t]) {
        if (t < first) continue;
        total += 1;
        const auto at = std::ranges::find(recent, expert);
        if (at != recent.end()) reused[static_cast<size_t>(at - recent.begin())] += 1;
      }
      for (const int expert : tokens[t]) {
        const auto at = std::ranges::find(recent, expert);
        if (at != recent.end()) recent.erase(at);
        recent.insert(recent.begin(), expert);
      }
    }
    seen += static_cast<double>(recent.size());
  }
  std::vector<double> misses(n + 1, 1);
  const auto known = static_cast<size_t>(seen / static_cast<double>(uses.size()));
  double hits = 0;
  for (size_t i = 1; i <= n; ++i) {
    hits += reused[i - 1];
    misses[i] = 1 - hits / std::max(total, 1.0);
  }
  for (size_t i = known; i <= n; ++i)
    misses[i] =
        misses[known] * static_cast<double>(n - i) / static_cast<double>(std::max<size_t>(n - known, 1));
  return misses;
}

double distinct_of(double spread, int n, int k) {
  return spread <= k ? k : spread * (1 - std::pow(1 - k / spread, n));
}

double spread_of(double distinct, int n, int k, int n_experts) {
  double low = k, high = n_experts;
  for (int i = 0; i < 60; ++i) {
    const double spread = (low + high) / 2;
    (distinct_of(spread, n, k) < distinct ? low : high) = spread;
  }
  return (low + high) / 2;
}

}  // namespace redlite::plan
