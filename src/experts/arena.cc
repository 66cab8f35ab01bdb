#include "experts/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace redlite::experts {

Arena::Arena(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
#ifdef MAP_NORESERVE
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (p == MAP_FAILED) {
    fail("cannot get {} MiB of memory for the expert cache: {}; choose a smaller --cache-mib", bytes >> 20,
         std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(p);
#ifdef MADV_HUGEPAGE
  ::madvise(p, bytes, MADV_HUGEPAGE);  // a wish; its refusal costs only speed
#endif
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace redlite::experts
