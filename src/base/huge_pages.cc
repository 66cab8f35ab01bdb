#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

#ifdef __linux__
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#endif

namespace redlite {
namespace {

#ifdef __linux__
/// PAGEMAP_SCAN of Linux 6.7 (include/uapi/linux/fs.h), which older headers lack.
struct PageRegion {
  uint64_t start, end, categories;
};
struct PagemapScan {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);
constexpr uint64_t kPageIsHuge = 1 << 6;
#endif

}  // namespace

bool huge_pages_available() {
#ifdef __linux__
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return text.find("[always]") != std::string::npos || text.find("[madvise]") != std::string::npos;
#else
  return false;
#endif
}

void advise_huge_pages([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  // madvise() wants a page's start.
  const size_t before = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const first = const_cast<std::byte*>(static_cast<const std::byte*>(data)) - before;
  if (bytes > 0) ::madvise(first, bytes + before, MADV_HUGEPAGE);  // advice: it may be refused
#endif
}

bool is_huge_page([[maybe_unused]] const void* block) {
#ifdef __linux__
  static const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  PageRegion region = {};
  PagemapScan scan = {};
  scan.size = sizeof scan;
  scan.start = reinterpret_cast<uintptr_t>(block);
  scan.end = scan.start + kHugePage;
  scan.vec = reinterpret_cast<uintptr_t>(&region);
  scan.vec_len = 1;
  scan.category_mask = kPageIsHuge;
  scan.return_mask = kPageIsHuge;
  return ::ioctl(pagemap, kPagemapScan, &scan) == 1 && region.start == scan.start && region.end == scan.end;
#else
  return false;
#endif
}

void populate(const void* block) {
#ifdef MADV_POPULATE_READ
  if (::madvise(const_cast<void*>(block), kHugePage, MADV_POPULATE_READ) == 0) return;
#endif
  touch(block);
}

void touch(const void* block) {
  for (size_t i = 0; i < kHugePage; i += 4096)
    static_cast<void>(*(static_cast<const volatile std::byte*>(block) + i));
}

void drop_from_page_cache([[maybe_unused]] const void* block, [[maybe_unused]] int descriptor,
                          [[maybe_unused]] uint64_t offset) {
#ifdef __linux__
  const auto at = static_cast<off_t>(offset);
  const auto bytes = static_cast<off_t>(kHugePage);
  // What is mapped or not yet written to disk would stay.
  ::madvise(const_cast<void*>(block), kHugePage, MADV_DONTNEED);
  ::sync_file_range(descriptor, at, bytes,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(descriptor, at, bytes, POSIX_FADV_DONTNEED);
#endif
}

bool copy_to_huge_page([[maybe_unused]] const void* block) {
#ifdef __linux__
  RL_CHECK(reinterpret_cast<uintptr_t>(block) % kHugePage == 0, "block at {}", block);
  // A huge page needs an address that is a multiple of its size: somewhere in twice as much.
  void* const room = ::mmap(nullptr, 2 * kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  auto* const begin = static_cast<std::byte*>(room);
  std::byte* const copy = begin + (kHugePage - reinterpret_cast<uintptr_t>(room) % kHugePage) % kHugePage;
  std::byte* const end = begin + 2 * kHugePage;
  if (copy > begin) ::munmap(begin, static_cast<size_t>(copy - begin));
  if (copy + kHugePage < end) ::munmap(copy + kHugePage, static_cast<size_t>(end - copy) - kHugePage);
  ::madvise(copy, kHugePage, MADV_HUGEPAGE);
  std::memcpy(copy, block, kHugePage);
  // The move takes the place of the old pages in one step under the lock that page faults need.
  if (::mprotect(copy, kHugePage, PROT_READ) != 0 ||
      ::mremap(copy, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED, const_cast<void*>(block)) ==
          MAP_FAILED) {
    ::munmap(copy, kHugePage);
    return false;
  }
  return true;
#else
  return false;
#endif
}

HugeFloats::HugeFloats(size_t size, const char* what) {
  if (size == 0) return;
  void* const room = ::mmap(nullptr, size * sizeof(float), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    fail("cannot reserve {} MiB for {} ({})", size * sizeof(float) >> 20, what, std::strerror(errno));
  values_ = {static_cast<float*>(room), size};
  advise_huge_pages(room, size * sizeof(float));
}

HugeFloats::~HugeFloats() {
  if (!values_.empty()) ::munmap(values_.data(), values_.size_bytes());
}

}  // namespace redlite
