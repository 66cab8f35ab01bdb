#pragma once

#include <cstddef>

namespace redlite::experts {

/// Zeroed, page-aligned memory, huge pages where the system has them to give; it counts only when touched.
class Arena {
 public:
  /// Throws Error when the address space or the system's limits do not allow it.
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace redlite::experts
