#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace redlite {

/// Weights streamed through pages of 2 MiB come from memory up to twice as fast as through pages of 4 KiB,
/// because the processor looks up 512 times fewer addresses. Where the system has no such pages, or is told
/// to give none, everything here does nothing.
inline constexpr size_t kHugePage = size_t{1} << 21;

/// True when the system gives huge pages to those who ask (Linux: transparent huge pages `always` or
/// `madvise`).
bool huge_pages_available();

/// Asks for huge pages behind a mapping, before it is touched: memory then comes in them, and a file system
/// that can (ext4 from Linux 6.16, XFS) reads a cold file into them. What lies in the page cache already
/// stays as it is.
void advise_huge_pages(const void* data, size_t bytes);

/// Whether the huge page's worth of addresses at `block` (a multiple of kHugePage) is mapped as one. False
/// when not touched, and where the system cannot tell (before Linux 6.7).
bool is_huge_page(const void* block);

/// Brings a block of a mapping into memory.
void populate(const void* block);

/// Reads a byte of every small page of a block. Under a hypervisor that shadows page tables the first access
/// of a process to each costs microseconds, though the system maps it already.
void touch(const void* block);

/// Makes the system forget a block of a mapped file (shared, read-only), so that it is read from disk when
/// next touched. A part that is in use elsewhere stays.
void drop_from_page_cache(const void* block, int descriptor, uint64_t offset);

/// Replaces the contents of a mapped block (kHugePage bytes at a multiple of it) by a private copy in a huge
/// page at the same address. Other threads may read the block meanwhile: before and after they find the same
/// bytes. Returns false, and leaves the block as it was, when the system has no memory to give.
bool copy_to_huge_page(const void* block);

/// Values of zero in memory of its own, in huge pages if there are any. Memory is taken as it is touched.
class HugeFloats {
 public:
  HugeFloats() = default;
  /// Throws Error when there is no address space for them; `what` names them in the message.
  HugeFloats(size_t size, const char* what);
  ~HugeFloats();
  HugeFloats(const HugeFloats&) = delete;
  HugeFloats& operator=(const HugeFloats&) = delete;

  float* data() { return values_.data(); }
  size_t size() const { return values_.size(); }
  std::span<float> span() { return values_; }
  std::span<const float> span() const { return values_; }

 private:
  std::span<float> values_;
};

}  // namespace redlite
