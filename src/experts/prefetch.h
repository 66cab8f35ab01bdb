#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "experts/pool.h"

namespace redlite::experts {

/// Which predicted experts to load, and when they have become pointless. A plain data structure.
///
/// A prediction waits until the reads of the critical path are done (ExpertCache asks for next() only then)
/// and is dropped when its layer is acquired. How often predictions come true is measured for each rank (best
/// first), over those predictions whose expert was not resident, whether it was then loaded or not; a rank
/// that comes true too rarely is not loaded until it does better again.
class PrefetchPlan {
 public:
  /// At most `most_layers` predictions wait for what their layers then want; a further one drops the oldest.
  explicit PrefetchPlan(int n_experts_used, int most_layers = 1);

  /// The prediction that next() goes by now: the experts of a layer that are not resident, with their ranks.
  struct Candidate {
    int32_t expert;
    int rank;
  };
  void predict(int layer, std::span<const Candidate> missing);

  /// What the layer then wanted.
  void acquired(int layer, std::span<const int32_t> experts);

  /// The next expert to load, best first; nullopt when there is none.
  std::optional<ExpertKey> next();
  bool empty() const { return waiting_.empty(); }

  /// The share of this rank's predictions that came true lately.
  double precision(int rank) const { return precision_[static_cast<size_t>(rank)]; }

 private:
  std::vector<double> precision_;  ///< [rank], decaying average
  struct Prediction {
    int layer;
    std::vector<Candidate> missing;
  };
  size_t most_layers_;
  std::deque<Prediction> predictions_;  ///< the newest last
  int layer_ = -1;                      ///< of the newest, while it counts
  std::deque<int32_t> waiting_;
};

}  // namespace redlite::experts
