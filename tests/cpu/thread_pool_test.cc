#include "cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"

namespace redlite::cpu {
namespace {

TEST(ThreadPool, EveryItemOnceForAnyThreadsAndGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (const int n : {0, 1, 2, 7, 64, 1000}) {
      for (const int grain : {1, 3, 64, 5000}) {
        std::vector<int> count(static_cast<size_t>(n), 0);
        pool.run(n, grain, [&](int first, int last, int thread) {
          ASSERT_GE(thread, 0);
          ASSERT_LT(thread, threads);
          for (int i = first; i < last; ++i) ++count[static_cast<size_t>(i)];
        });
        for (const int c : count) ASSERT_EQ(c, 1) << threads << " threads, " << n << " by " << grain;
      }
    }
  }
}

// Back-to-back regions whose results depend on the ones before: a piece run twice, late or for the wrong
// region changes the sum.
TEST(ThreadPool, RegionsFollowOneAnother) {
  ThreadPool pool(4);
  std::vector<int64_t> values(37, 1);
  std::vector<int64_t> next(37, 0);
  std::vector<int64_t> expected(37, 1);
  for (int round = 0; round < 20000; ++round) {
    pool.run(37, 1 + round % 5, [&](int first, int last, int) {
      for (int i = first; i < last; ++i) next[i] = (values[i] + values[(i + 1) % 37] + round) % 1000003;
    });
    values.swap(next);
    std::vector<int64_t> e(37);
    for (int i = 0; i < 37; ++i) e[i] = (expected[i] + expected[(i + 1) % 37] + round) % 1000003;
    expected.swap(e);
  }
  EXPECT_EQ(values, expected);
}

// The caller's own business is done once, by the caller, while others compute.
TEST(ThreadPool, ComputesBesideTheCaller) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const int grain : {1, 8}) {
      std::atomic<int> sum = 0;
      int calls = 0;
      const std::thread::id caller = std::this_thread::get_id();
      pool.run(
          8, grain, [&](int first, int last, int) { sum += last - first; },
          [&] {
            ++calls;
            EXPECT_EQ(std::this_thread::get_id(), caller);
            // Without another thread, or another piece, nobody computes before this ends.
            while (threads > 1 && grain == 1 && sum < 8) std::this_thread::yield();
          });
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(sum, 8);
    }
  }
}

TEST(ThreadPool, ARegionEndsThoughItsCallerFails) {
  ThreadPool pool(2);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> sum = 0;
    const auto body = [&](int first, int last, int) { sum += last - first; };
    EXPECT_THROW(pool.run(8, 1, body, [] { fail("no"); }), Error);
    EXPECT_EQ(sum, 8);
  }
}

// A thread's pieces are neighbours, in rising order but for those of others' that it ends with.
TEST(ThreadPool, EachThreadBeginsWithItsShare) {
  ThreadPool pool(2);
  std::array<std::vector<int>, 2> pieces;
  std::atomic<int> begun = 0;
  pool.run(8, 1, [&](int first, int, int thread) {
    std::vector<int>& own = pieces[static_cast<size_t>(thread)];
    own.push_back(first);
    // Both have begun before either goes on.
    if (own.size() == 1) ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(pieces[0].front(), 0);
  EXPECT_EQ(pieces[1].front(), 4);
}

TEST(ThreadPool, SleepingThreadsWakeUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long past the spinning
    std::vector<int> by(2, 0);
    pool.run(2, 1, [&](int first, int, int thread) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      by[static_cast<size_t>(first)] = thread + 1;
    });
    EXPECT_EQ(std::set<int>(by.begin(), by.end()), (std::set<int>{1, 2})) << "the other thread took no piece";
  }
}

// Far more threads than cores: waiting must give the cores away, not burn them.
TEST(ThreadPool, OversubscriptionDoesNotCollapse) {
  ThreadPool pool(4 * available_threads());
  const auto start = std::chrono::steady_clock::now();
  std::vector<int> out(64);
  for (int round = 0; round < 2000; ++round) {
    pool.run(64, 1, [&](int first, int last, int) {
      for (int i = first; i < last; ++i) out[static_cast<size_t>(i)] = round;
    });
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 10.0);
}

// 8 MiB of stack each: the system refuses before they are all there.
TEST(ThreadPoolDeathTest, MoreThreadsThanTheSystemAllowsAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the address space";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "a sanitizer needs the address space";
#endif
#endif
  const auto start_too_many = [] {
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(4096);
    } catch (const Error& e) {
      std::fputs(e.what(), stderr);
      std::_Exit(1);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(start_too_many(), ::testing::ExitedWithCode(1), "cannot start 4096 threads, only [0-9]+: ");
}

TEST(ThreadPool, ZeroMeansTheAvailableCores) {
  EXPECT_GE(available_threads(), 1);
  EXPECT_EQ(ThreadPool(0).size(), available_threads());
}

}  // namespace
}  // namespace redlite::cpu
