#include "gpu/kernels/device_matrix.h"

#include "gpu/kernels/rows.h"
#include "gpu/matrix.h"

namespace redlite::gpu {

size_t activation_bytes(int n) {
  return Activations::bytes(n);
}

DeviceMatrix device_matrix(quant::Type type, int rows, int cols, const std::byte* data) {
  DeviceMatrix out;
  out.planes = plane_matrix(type, rows, cols, data);
  const PlaneFormat& format = plane_format(type);
  for (int i = 0; i < format.n_planes; ++i)
    out.row_bytes[i] =
        static_cast<uint32_t>(format.planes[i].bytes) * static_cast<uint32_t>(cols / format.block_values);
  out.type = type;
  out.lanes = matvec_lanes(type, cols);
  return out;
}

}  // namespace redlite::gpu
