#pragma once

#include <cstdint>

namespace redlite::gpu {

/// How many layers are submitted ahead of the CPU's decisions, from how often one of them stops.
///
/// A window of W layers costs one stop of the CPU (submit, wait for the router's word), and where a layer in
/// it misses an expert, the kernels behind that return at once, which still costs something for each layer.
/// With p the share of layers that miss, a window gets (1 - (1-p)^W) / p layers further on average; the best
/// W has the least cost for each of these.
class Lookahead {
 public:
  /// Measured on the device, in any unit of time.
  struct Costs {
    double stop = 1;  ///< of a decision of the CPU's
    double skip = 1;  ///< of a layer whose kernels return at once
  };

  /// Windows of `least` to `most` layers; equal: always that many.
  Lookahead(int least, int most, Costs costs);

  int window() const { return window_; }
  /// What became of a layer: it missed something, or did not.
  void observe(bool missed);

  const Costs& costs() const { return costs_; }
  double miss_rate() const { return miss_rate_; }

 private:
  int least_, most_;
  Costs costs_;
  double miss_rate_ = 1;  ///< decaying average
  int since_choice_ = 0;
  int window_;
};

}  // namespace redlite::gpu
