#pragma once

#include <cstdint>

namespace redlite::gpu {

/// Threads of every block of a forward pass.
inline constexpr uint32_t kStepThreads = 256;

/// What changes from one forward pass to the next and kernels have to know: the host writes it where it is
/// mapped, the pass's first kernel copies it to device memory, so that a captured graph can be replayed.
struct Step {
  int32_t position;  ///< of the first token
  uint32_t number;   ///< of the pass, never twice the same
  uint32_t flip;     ///< 0 or 1: which half of the convolutions' histories is read, the other one is written
};

}  // namespace redlite::gpu
