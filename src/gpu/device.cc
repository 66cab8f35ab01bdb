#include "gpu/device.h"

#include <algorithm>

#include "base/error.h"

namespace redlite::gpu {

namespace {

/// Runs `call`, putting before the message of its failure what was to be allocated.
template <typename Function>
auto for_purpose(size_t bytes, std::string_view purpose, Function&& call) {
  try {
    return call();
  } catch (const Error& e) {
    fail("{} ({:.1f} MiB): {}", purpose, static_cast<double>(bytes) / 0x1p20, e.what());
  }
}

}  // namespace

void Device::check_fault(Call call, std::string_view what) const {
  if (fault_hook_ && fault_hook_(call)) fail("GPU: {} failed (injected fault)", what);
}

Buffer Device::allocate(size_t bytes, std::string_view purpose) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  buffer.address_ = for_purpose(bytes, purpose, [&] {
    check_fault(Call::allocate, "allocation");
    return do_allocate(bytes);
  });
  buffer.device_ = this;
  buffer.bytes_ = bytes;
  use_.device += bytes;
  use_.device_peak = std::max(use_.device_peak, use_.device);
  return buffer;
}

Buffer::~Buffer() {
  if (address_ == nullptr) return;
  device_->do_free(address_, bytes_);
  device_->use_.device -= bytes_;
}

HostBuffer Device::allocate_host(size_t bytes, std::string_view purpose) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  buffer.host_ = for_purpose(bytes, purpose, [&] {
    check_fault(Call::allocate_host, "allocation of page-locked memory");
    return do_allocate_host(bytes, &buffer.on_device_);
  });
  buffer.device_ = this;
  buffer.bytes_ = bytes;
  use_.host += bytes;
  return buffer;
}

HostBuffer Device::register_host(void* address, size_t bytes, bool read_only, std::string_view purpose) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  buffer.on_device_ = for_purpose(bytes, purpose, [&] {
    check_fault(Call::register_host, "registration of host memory");
    return do_register(address, bytes, read_only);
  });
  buffer.device_ = this;
  buffer.host_ = address;
  buffer.bytes_ = bytes;
  buffer.registered_ = true;
  use_.registered += bytes;
  return buffer;
}

HostBuffer::~HostBuffer() {
  if (host_ == nullptr) return;
  if (registered_) {
    device_->do_unregister(host_, bytes_);
    device_->use_.registered -= bytes_;
  } else {
    device_->do_free_host(host_, bytes_);
    device_->use_.host -= bytes_;
  }
}

}  // namespace redlite::gpu
