#pragma once

#include <vector>

#include "experts/layout.h"
#include "gpu/device.h"

namespace redlite::gpu {

/// A model's mapped files, registered read-only: kernels read experts where the page cache has them, and no
/// second copy is made. As long as this lives the pages stay in memory.
class RegisteredFiles {
 public:
  /// Throws Error when the system does not let so much memory be pinned.
  RegisteredFiles(Device& device, const experts::ExpertFiles& files);

  /// The device's address of a byte of the mapping.
  const std::byte* on_device(const std::byte* mapped) const;

 private:
  std::vector<HostBuffer> buffers_;
};

}  // namespace redlite::gpu
