#pragma once

namespace redlite::gpu {

/// How many layers are submitted ahead of the CPU's decisions, from how often one of them stops.
///
/// A window of W layers costs one decision of the CPU (submit, wait for the router's word); where a layer in
/// it misses an expert the GPU waits for that, and the kernels behind it return at once, which still costs
/// something for each layer. With p the share of layers that miss, a window gets A = (1 - (1-p)^W) / p layers
/// further on average, and a layer costs (decision + skip (W - A)) / A + p wait. Only windows of one layer
/// leave room for prefetch: in them fewer layers miss.
class Lookahead {
 public:
  /// Measured on the device, in microseconds.
  struct Costs {
    double decision = 1;
    double skip = 1;  ///< of a layer whose kernels return at once
    double load = 1;  ///< of an expert from host memory into its slot, while the GPU waits
  };
  /// What became of a layer.
  struct Outcome {
    bool missed = false;      ///< the GPU had to wait
    bool prefetched = false;  ///< what it selected was prefetched: without that it had missed
    double waited = 0;        ///< microseconds until host memory had what was missing
  };

  /// Windows of `least` to `most` layers; equal: always that many.
  Lookahead(int least, int most, const Costs& costs);

  int window() const { return window_; }
  void observe(const Outcome& outcome);

  const Costs& costs() const { return costs_; }
  /// The share of layers that miss in windows of one layer, and in longer ones.
  double miss_rate() const { return miss_rate_; }
  double miss_rate_without_prefetch() const { return without_; }

 private:
  int least_, most_;
  Costs costs_;
  // Decaying averages.
  double miss_rate_ = 1, without_ = 1;
  double kept_ = 1;    ///< of the layers that would miss without prefetch, those that miss with it
  double waited_ = 0;  ///< for host memory, by a layer that missed
  int since_choice_ = 0;
  int window_;
};

}  // namespace redlite::gpu
