#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace redlite::gpu {

/// Device memory in pieces that live as long as the arena: many small ones share an allocation.
class Arena {
 public:
  /// `purpose` names the memory in errors.
  Arena(Device& device, std::string purpose) : device_(device), purpose_(std::move(purpose)) {}

  /// 256-byte aligned, uninitialised.
  std::byte* take(size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (left_ < bytes) {
      left_ = bytes > kShared / 4 ? bytes : kShared;
      buffers_.push_back(device_.allocate(left_, purpose_));
      next_ = buffers_.back().as();
    }
    std::byte* piece = next_;
    next_ += bytes;
    left_ -= bytes;
    return piece;
  }
  template <typename T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }

 private:
  static constexpr size_t kShared = size_t{4} << 20;

  Device& device_;
  std::string purpose_;
  std::vector<Buffer> buffers_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace redlite::gpu
