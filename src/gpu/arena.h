#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace redlite::gpu {

/// Device memory in pieces that live as long as the arena: many small ones share an allocation.
class Arena {
 public:
  /// `purpose` names the memory in errors. Small pieces share allocations of `shared` bytes.
  Arena(Device& device, std::string purpose, size_t shared = size_t{4} << 20)
      : device_(device), purpose_(std::move(purpose)), shared_(shared) {}

  /// 256-byte aligned, uninitialised.
  std::byte* take(size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (left_ < bytes) {
      left_ = bytes > shared_ / 4 ? bytes : shared_;
      buffers_.push_back(device_.allocate(left_, purpose_));
      next_ = buffers_.back().as();
    }
    std::byte* piece = next_;
    next_ += bytes;
    left_ -= bytes;
    return piece;
  }
  /// Taken from the device.
  size_t bytes() const {
    size_t bytes = 0;
    for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
    return bytes;
  }
  template <typename T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }

 private:
  Device& device_;
  std::string purpose_;
  size_t shared_;
  std::vector<Buffer> buffers_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace redlite::gpu
