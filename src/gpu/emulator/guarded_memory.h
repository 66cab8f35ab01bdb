#pragma once

#include <cstddef>
#include <cstring>

#include "base/aligned.h"
#include "gpu/emulator/sanitizers.h"

namespace redlite::gpu::emulator {

/// Memory whose ends AddressSanitizer guards to the byte, 256-byte aligned.
class GuardedMemory {
 public:
  GuardedMemory() = default;
  explicit GuardedMemory(size_t bytes) : memory_(padded(bytes) + 2 * kGuard, kAlignment) { set_bytes(bytes); }
  GuardedMemory(GuardedMemory&&) = default;
  GuardedMemory& operator=(GuardedMemory&&) = default;
  ~GuardedMemory() { unpoison(); }

  std::byte* data() { return memory_.data() + kGuard; }
  size_t bytes() const { return bytes_; }

  /// Makes exactly `bytes` accessible and fills them with 0xff if `fill`.
  void resize(size_t bytes, bool fill) {
    if (memory_.size() < padded(bytes) + 2 * kGuard) {
      *this = GuardedMemory(bytes);
    } else if (bytes != bytes_) {
      unpoison();
      set_bytes(bytes);
    }
    if (fill) std::memset(data(), 0xff, bytes);
  }

 private:
  static constexpr size_t kAlignment = 256;
  static constexpr size_t kGuard = 1024;
  static size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  void set_bytes(size_t bytes) {
    bytes_ = bytes;
#ifdef REDLITE_ASAN
    __asan_poison_memory_region(memory_.data(), kGuard);
    __asan_poison_memory_region(data() + bytes, memory_.size() - kGuard - bytes);
#endif
  }
  void unpoison() {
#ifdef REDLITE_ASAN
    if (memory_.size() != 0) __asan_unpoison_memory_region(memory_.data(), memory_.size());
#endif
  }

  AlignedBuffer<std::byte> memory_;
  size_t bytes_ = 0;
};

}  // namespace redlite::gpu::emulator
