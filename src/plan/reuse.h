#pragma once

#include <cstddef>
#include <vector>

#include "model/runner.h"

namespace redlite::plan {

/// Which experts a sequence of tokens used: [layer][token][i].
using Uses = std::vector<std::vector<std::vector<int>>>;

/// Notes the experts of every token that a runner computes, as its tap, while it lives.
class UseRecorder {
 public:
  UseRecorder(model::Runner& runner, int n_layers);
  ~UseRecorder() { runner_.set_tap({}); }
  UseRecorder(const UseRecorder&) = delete;
  UseRecorder& operator=(const UseRecorder&) = delete;

  const Uses& uses() const { return uses_; }
  size_t tokens() const { return uses_.front().size(); }

 private:
  model::Runner& runner_;
  Uses uses_;
};

/// Different experts of a layer that tokens [first, last) used, in the mean of the layers.
double distinct_uses(const Uses& uses, size_t first, size_t last);

/// The part of selections, from token `first` on, that a cache of i experts a layer misses, least recently
/// used given away first, for each i in [0, n_experts]. `first` must be below the number of tokens. Where
/// more experts fit than the tokens have used nobody knows: a straight line to no misses.
std::vector<double> miss_curve(const Uses& uses, size_t first, int n_experts);

/// Of how many experts n tokens seem to choose k each, evenly, when they use `distinct` different ones.
double spread_of(double distinct, int n, int k, int n_experts);
/// ... and how many different ones n tokens use then.
double distinct_of(double spread, int n, int k);

}  // namespace redlite::plan
