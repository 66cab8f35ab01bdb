#include "gpu/registered_files.h"

#include "base/error.h"

namespace redlite::gpu {

RegisteredFiles::RegisteredFiles(Device& device, const experts::ExpertFiles& files) {
  for (const MappedFile* file : files.shards) {
    // Only read, as the registration says.
    void* address = const_cast<std::byte*>(file->bytes().data());
    buffers_.push_back(
        device.register_host(address, file->bytes().size(), true, file->file().path() + " in host memory"));
  }
}

const std::byte* RegisteredFiles::on_device(const std::byte* mapped) const {
  for (const HostBuffer& buffer : buffers_) {
    const ptrdiff_t offset = mapped - buffer.host();
    if (offset >= 0 && static_cast<size_t>(offset) < buffer.bytes()) return buffer.on_device() + offset;
  }
  RL_CHECK(false, "an address outside the mapped files");
  return nullptr;
}

}  // namespace redlite::gpu
