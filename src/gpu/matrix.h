#pragma once

#include <cstdint>

#include "gpu/codebooks.h"
#include "gpu/device.h"
#include "gpu/planes.h"
#include "quant/type.h"

/// Launches of the kernels that handle whole matrices, with the right shape for the device.
namespace redlite::gpu {

/// Threads that share a row of a product: as many as the row has units (planes.h), rounded up to a power of
/// two, at most a warp.
int matvec_lanes(quant::Type type, int cols);

struct MatVecInput {
  const float* x = nullptr;     ///< [cols] on the device, 16-byte aligned
  const float* norm = nullptr;  ///< [cols] on the device: RMS norm of x first; nullptr: none
  float eps = 0;
  const Codebooks* books = nullptr;  ///< on the device
  const uint32_t* skip = nullptr;    ///< the early-out flag on the device; nullptr: none
};

/// y[rows] = W x.
void matvec(Stream& stream, const DeviceInfo& device, quant::Type type, const PlaneMatrix& w,
            const MatVecInput& input, float* y, bool early_start = false);

/// GGUF blocks at `from` (device memory, or host memory that kernels can read) to planes at `to`, which has
/// plane_bytes(). At most `max_blocks` thread blocks work on it (0: as many as are of use).
void repack(Stream& stream, const DeviceInfo& device, quant::Type type, int rows, int cols,
            const std::byte* from, std::byte* to, const uint32_t* skip = nullptr, int max_blocks = 0,
            bool early_start = false);

}  // namespace redlite::gpu
