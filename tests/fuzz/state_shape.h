#pragma once

#include "session/state_file.h"

namespace redlite::testing {

/// What the seeds of state_fuzz are states of.
inline session::StateShape fuzzed_state_shape() {
  return {.fingerprint = {1, 2}, .mark_bytes = 96, .position_bytes = 32, .capacity = 64, .n_vocab = 100};
}

}  // namespace redlite::testing
