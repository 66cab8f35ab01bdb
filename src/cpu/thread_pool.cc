#include "cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>

#include "base/error.h"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace redlite::cpu {
namespace {

// Between the regions of one token lie a few microseconds of single-threaded work; a thread that went to
// sleep there would need as long again to wake. Longer gaps (reads from disk, sampling) are slept through.
constexpr std::chrono::microseconds kSpin{5};
constexpr std::chrono::microseconds kYield{60};

// Of Share::left.
constexpr int kPieceBits = 20;
constexpr uint64_t kOnePiece = uint64_t{1} << kPieceBits;  // added to the first

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits for `ready` by spinning, then by offering the core to others. False when it gave up.
template <typename Ready>
bool spin_until(Ready ready) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kYield) return false;
    if (waited > kSpin) std::this_thread::yield();
  }
}

/// Cores that the CPU quota of this control group (version 2 or 1) allows; 0 when there is no quota.
int quota_cores() {
  long long quota = -1;
  long long period = 0;
  std::string word;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> word >> period) {
    if (word != "max") quota = std::stoll(word);
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

void end(std::vector<std::thread>& workers, std::atomic<bool>& stop, std::atomic<int>& wake) {
  stop = true;
  ++wake;
  wake.notify_all();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

int available_threads() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
#endif
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

ThreadPool::ThreadPool(int threads) {
  if (threads == 0) threads = available_threads();
  RL_CHECK(threads > 0, "{} threads", threads);
  shares_ = std::vector<Share>(static_cast<size_t>(threads));
  workers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
  } catch (const std::system_error& e) {
    const size_t started = workers_.size() + 1;
    end(workers_, stop_, wake_);
    fail("cannot start {} threads, only {}: {}; ask for fewer (--threads)", threads, started,
         e.code().message());
  }
}

ThreadPool::~ThreadPool() {
  end(workers_, stop_, wake_);
}

void ThreadPool::run_pieces(const Region& region, const std::function<void()>& beside) {
  if (workers_.empty()) {
    if (beside) beside();
    region.call(region.context, 0, region.n, 0);
    return;
  }
  const int pieces = region.pieces();
  RL_CHECK(static_cast<uint64_t>(pieces) < kOnePiece, "{} pieces", pieces);
  region_ = region;
  done_.store(0, std::memory_order_relaxed);
  ++number_;
  for (int thread = 0; thread < size(); ++thread) {
    const auto first_of = [&](int t) { return static_cast<uint64_t>(int64_t{pieces} * t / size()); };
    shares_[static_cast<size_t>(thread)].left.store(number_ << 2 * kPieceBits |
                                                    first_of(thread) << kPieceBits | first_of(thread + 1));
  }
  ++wake_;
  wake_.notify_all();  // without a system call when nobody sleeps

  const struct Finish {  // even if `beside` throws
    ThreadPool& pool;
    int pieces;
    ~Finish() { pool.finish(pieces); }
  } finish{*this, pieces};
  if (beside) beside();
}

void ThreadPool::finish(int pieces) {
  work(0);
  if (spin_until([&] { return done_.load(std::memory_order_acquire) == pieces; })) return;
  for (int done = done_.load(std::memory_order_acquire); done != pieces;
       done = done_.load(std::memory_order_acquire)) {
    done_.wait(done, std::memory_order_acquire);
  }
}

/// The first piece left of the thread's own share, else the last of another's; -1 when there is none.
int ThreadPool::claim(int thread) {
  for (int i = 0; i < size(); ++i) {
    std::atomic<uint64_t>& left = shares_[static_cast<size_t>((thread + i) % size())].left;
    uint64_t seen = left.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t first = seen / kOnePiece % kOnePiece, end = seen % kOnePiece;
      if (first == end) break;
      const uint64_t rest = i == 0 ? seen + kOnePiece : seen - 1;
      if (left.compare_exchange_weak(seen, rest, std::memory_order_acq_rel, std::memory_order_acquire))
        return static_cast<int>(i == 0 ? first : end - 1);
    }
  }
  return -1;
}

void ThreadPool::work(int thread) {
  for (int piece = claim(thread); piece >= 0; piece = claim(thread)) {
    // The claim keeps the region alive: it cannot end before this piece is counted below.
    const Region region = region_;
    const int first = piece * region.grain;
    region.call(region.context, first, std::min(first + region.grain, region.n), thread);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == region.pieces()) done_.notify_one();
  }
}

void ThreadPool::worker_loop(int thread) {
  while (!stop_.load(std::memory_order_relaxed)) {
    const int seen = wake_.load();
    work(thread);
    const auto changed = [&] { return wake_.load() != seen; };
    if (!spin_until(changed)) wake_.wait(seen);
  }
}

}  // namespace redlite::cpu
