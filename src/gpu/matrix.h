#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "gpu/planes.h"
#include "quant/type.h"

/// Launches of the kernels that handle whole matrices, with the right shape for the device.
namespace redlite::gpu {

/// GGUF blocks at `from` (device memory, or host memory that kernels can read) to planes at `to`, which has
/// plane_bytes(). At most `max_blocks` thread blocks work on it (0: as many as are of use).
void repack(Stream& stream, const DeviceInfo& device, quant::Type type, int rows, int cols,
            const std::byte* from, std::byte* to, const uint32_t* skip = nullptr, int max_blocks = 0,
            bool early_start = false);

}  // namespace redlite::gpu
