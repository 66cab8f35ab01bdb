#pragma once

#include <functional>

#include "bench/measure.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::plan {

struct Speeds {
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
  double hit_rate = 1;  ///< of the decoded tokens' selections
};

/// What a small model is run with: as `redlite bench` does, but shorter.
struct Length {
  int prompt = 512, decode = 64, repetitions = 5;
  int context() const;  ///< tokens that the runner must hold
};

/// Runs the model as the benchmark does. `bytes_kv`: of a key's or a value's number.
Speeds measure(const model::Model& model, model::Runner& runner, int bytes_kv, const Length& length,
               std::function<bench::Counters()> counters);

}  // namespace redlite::plan
