// Stands in for CUDA where it was not built.
#include "base/error.h"
#include "gpu/device.h"

namespace redlite::gpu {

bool built_with_cuda() {
  return false;
}

std::unique_ptr<Device> open_cuda(int /*index*/) {
  fail("this build has no CUDA: install nvcc and configure with -DREDLITE_CUDA=ON");
}

}  // namespace redlite::gpu
