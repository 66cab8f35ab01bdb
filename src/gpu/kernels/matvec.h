#pragma once

#include "gpu/codebooks.h"
#include "gpu/kernel.h"
#include "gpu/planes.h"
#include "quant/type.h"

namespace redlite::gpu {

struct MatVecParams {
  PlaneMatrix w;      ///< rows x cols
  const float* x;     ///< [cols], 16-byte aligned
  const float* norm;  ///< [cols]: x is RMS-normalised first and multiplied by it; or nullptr
  float eps;          ///< of the norm
  float* y;           ///< [rows]
  const Codebooks* books;
  const uint32_t* skip;  ///< the early-out flag; or nullptr
  int lanes;             ///< threads that share a row: matvec_lanes()
};

/// y = W x for one token. Threads: 256; dynamic shared memory: matvec_shared_bytes().
template <quant::Type T>
struct MatVec {
  static constexpr const char* kName = "matvec";
  using Params = MatVecParams;
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);
};

}  // namespace redlite::gpu
