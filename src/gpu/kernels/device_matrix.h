#pragma once

#include "gpu/codebooks.h"
#include "gpu/planes.h"
#include "quant/type.h"

namespace redlite::gpu {

/// A matrix in device memory and how its rows are multiplied.
struct DeviceMatrix {
  PlaneMatrix planes;
  uint32_t row_bytes[kMaxPlanes] = {};  ///< of a row in each plane; 0: the type has no such plane
  quant::Type type = quant::Type::F32;
  int lanes = 1;  ///< threads that share a row: matvec_lanes() in gpu/matrix.h
};

DeviceMatrix device_matrix(quant::Type type, int rows, int cols, const std::byte* data);

/// Bytes of shared memory for a vector of n values as a kernel multiplies with it (Activations in rows.h).
size_t activation_bytes(int n);

}  // namespace redlite::gpu
