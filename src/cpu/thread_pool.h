#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace redlite::cpu {

/// Cores this process may use: its affinity mask, and the CPU quota of its control group rounded up.
int available_threads();

/// Persistent threads that share the pieces of one parallel region after another with the thread that asks.
///
/// Each thread has a share of neighbouring pieces, the same in regions of the same shape, and goes through it
/// from its first on, so that what it reads lies one behind the other; who has none left takes the last ones
/// of others. Pieces are claimed one by one, so a core that the system took away delays one piece and not the
/// region; a region ends when its pieces are done, whether or not every thread woke up for it. Waiting
/// threads spin for a few microseconds, then yield, then sleep. Which thread computes a piece is up to
/// chance: a body must write only what its piece owns, in an order that does not depend on the thread.
class ThreadPool {
 public:
  /// `threads` in all, the calling one included; 0: available_threads(). Error if they cannot start.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(shares_.size()); }

  /// Calls body(first, last, thread) for pieces of at most `grain` that cover [0, n), thread in [0, size());
  /// returns when all are done. The calling thread calls `beside` once, if there is one, while others begin.
  /// A region of one piece runs on the calling thread at once. Not reentrant, to be called by one thread at a
  /// time; the body must not throw.
  template <typename Body>
  void run(int n, int grain, Body&& body, const std::function<void()>& beside = {}) {
    if (n <= grain) {
      if (beside) beside();
      if (n > 0) body(0, n, 0);
      return;
    }
    run_pieces({[](void* context, int first, int last, int thread) noexcept {
                  (*static_cast<std::remove_reference_t<Body>*>(context))(first, last, thread);
                },
                const_cast<void*>(static_cast<const void*>(&body)), n, grain},
               beside);
  }

 private:
  struct Region {
    void (*call)(void* context, int first, int last, int thread) noexcept = nullptr;
    void* context = nullptr;
    int n = 0;
    int grain = 1;

    int pieces() const { return (n + grain - 1) / grain; }
  };
  /// Pieces that are left of a thread's share: number of the region << 40 | first << 20 | end. A claim is a
  /// compare-and-swap, so a thread that slept through a region cannot take a piece of a later one by mistake.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
  };

  void run_pieces(const Region& region, const std::function<void()>& beside);
  int claim(int thread);
  void work(int thread);
  void finish(int pieces);
  void worker_loop(int thread);

  std::vector<Share> shares_;  ///< by thread
  std::vector<std::thread> workers_;
  Region region_;
  uint64_t number_ = 0;  ///< of the region
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<int> wake_{0};  ///< changes with each region; idle workers sleep on it
  std::atomic<bool> stop_{false};
};

}  // namespace redlite::cpu
