#include "base/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"

namespace redlite {
namespace {

/// Sums that the compiler turns into wide loads; the result is needed so that it keeps them.
uint64_t read_all(std::span<const uint64_t> words) {
  constexpr size_t kLanes = 64;
  uint64_t sums[kLanes] = {};
  for (size_t i = 0; i + kLanes <= words.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double memory_read_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kPasses = 4;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot measure the memory's bandwidth: 1 GiB cannot be had");
  ::madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);

  const std::span<const uint64_t> words(static_cast<const uint64_t*>(memory), kBytes / sizeof(uint64_t));
  const size_t share = words.size() / static_cast<size_t>(threads);
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> readers;
      for (int t = 0; t < threads; ++t)
        readers.emplace_back(
            [&, t] { sink += read_all(words.subspan(share * static_cast<size_t>(t), share)); });
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  ::munmap(memory, kBytes);
  return best;
}

}  // namespace redlite
