#pragma once

#include "gpu/kernels/activations.h"
#include "gpu/kernels/step.h"

#ifdef __CUDACC__
#define RL_NOINLINE __noinline__
#else
#define RL_NOINLINE __attribute__((noinline))
#endif

/// What the kernels of a forward pass have in common; for kernels only.
namespace redlite::gpu {

static_assert(kBlockThreads == static_cast<int>(kStepThreads));

RL_DEVICE inline float sigmoid(float x) {
  return 1 / (1 + simt::exp(-x));
}
RL_DEVICE inline float silu(float x) {
  return x / (1 + simt::exp(-x));
}

}  // namespace redlite::gpu
