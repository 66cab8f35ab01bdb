#include "machine/memory_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/memory.h"

namespace redlite::machine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastBytes = size_t{16} << 20;

/// Anonymous memory that starts at a huge page.
class HugeMemory {
 public:
  explicit HugeMemory(size_t bytes) : mapped_(bytes + kHugePage) {
    mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) fail("cannot have {} MiB to measure the memory's speed with", bytes >> 20);
    const auto address = reinterpret_cast<uintptr_t>(mapping_);
    const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
    data_ = static_cast<std::byte*>(mapping_) + (aligned - address);
#ifdef MADV_HUGEPAGE
    ::madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  ~HugeMemory() {
    ::munmap(mapping_, mapped_);
  }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data() const {
    return data_;
  }

 private:
  size_t mapped_;
  void* mapping_;
  std::byte* data_;
};

/// A sum that the compiler turns into vector loads; the result is needed so that it keeps them. Asking for
/// the line 1 KiB ahead is worth 7 % with one thread and with two on a Xeon (16.1 GB/s instead of 15.1), 4
/// KiB ahead costs as much; wider loads change nothing. Not for the sanitizers, under which the tests would
/// spend a minute here.
__attribute__((no_sanitize("address", "undefined"))) uint64_t read_all(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 8;  // a cache line
  constexpr size_t kLine = kLanes * sizeof(uint64_t);
  constexpr size_t kAhead = 1024;
  uint64_t sums[kLanes] = {};
  for (size_t i = 0; i + kLine <= bytes.size(); i += kLine) {
    __builtin_prefetch(bytes.data() + i + kAhead);
    uint64_t line[kLanes];
    std::memcpy(line, bytes.data() + i, kLine);
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += line[lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

void read_memory(std::span<const std::byte> bytes) {
  // The compiler must believe that somebody wants the sum.
  asm volatile("" : : "r"(read_all(bytes)));
}

double memory_bandwidth(int threads, int passes, size_t most_bytes) {
  RL_CHECK(threads > 0 && passes > 0, "{} threads, {} passes", threads, passes);
  // More threads than cores read no faster, and take their turns.
  if (const auto cores = static_cast<int>(std::thread::hardware_concurrency()); cores > 0)
    threads = std::min(threads, cores);
  const size_t room = available_memory() / 8;
  if (room < kLeastBytes)
    fail("too little free memory to measure its speed: {} MiB are needed", 8 * kLeastBytes >> 20);
  const auto n = static_cast<size_t>(threads);
  const size_t share = std::min(most_bytes, room) / n / kHugePage * kHugePage;
  if (share == 0) fail("too little free memory to measure its speed with {} threads", threads);
  const HugeMemory memory(share * n);

  // The clock is read by whoever arrives last, before anybody goes on: another thread would read it late.
  std::chrono::steady_clock::time_point began;
  std::barrier start(threads, [&]() noexcept { began = std::chrono::steady_clock::now(); });
  double best = 0;
  std::barrier end(threads, [&]() noexcept {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    best = std::max(best, static_cast<double>(share * n) / seconds);
  });
  const auto read_share = [&](size_t thread) {
    std::byte* const data = memory.data() + share * thread;
    // Each thread touches its own part first, so that it lies near.
    for (size_t i = 0; i < share; i += 4096) data[i] = std::byte{1};
    for (int pass = 0; pass < passes; ++pass) {
      start.arrive_and_wait();
      read_memory({data, share});
      end.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> readers;
    for (size_t t = 0; t < n; ++t) readers.emplace_back(read_share, t);
  }
  return best;
}

}  // namespace redlite::machine
