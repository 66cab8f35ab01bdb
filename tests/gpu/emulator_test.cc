#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"
#include "gpu/emulator/sanitizers.h"
#include "gpu/simt.h"

namespace redlite::gpu {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// What `launch` makes the emulator say; empty if nothing.
template <typename K>
std::string failure(const Shape& shape, const typename K::Params& params) {
  const auto device = open_emulator();
  const auto stream = device->create_stream();
  try {
    stream->launch<K>(shape, params);
    stream->synchronize();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

struct Where {
  int skip_thread;
};

/// One thread returns before a barrier that the others wait at.
struct EarlyReturnBeforeBarrier {
  static constexpr const char* kName = "early_return_before_barrier";
  using Params = Where;
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    if (simt::thread_index() == p.skip_thread) return;
    simt::sync_block();
  }
};

TEST(Emulator, FindsThreadsThatReturnBeforeABarrier) {
  for (const int thread : {0, 5, 31, 40, 63}) {
    const std::string what = failure<EarlyReturnBeforeBarrier>({.threads = 64}, {thread});
    EXPECT_THAT(
        what, AllOf(HasSubstr("early_return_before_barrier"), HasSubstr("sync_block"), HasSubstr("return")));
  }
  EXPECT_EQ(failure<EarlyReturnBeforeBarrier>({.threads = 64}, {64}), "");
}

/// A whole warp returns before a barrier that the others wait at.
struct WarpReturnsBeforeBarrier {
  static constexpr const char* kName = "warp_returns_before_barrier";
  using Params = Where;
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    if (simt::warp_index() == p.skip_thread) return;
    simt::sync_block();
  }
};

TEST(Emulator, FindsWarpsThatReturnBeforeABarrier) {
  for (const int warp : {0, 1, 2}) {
    EXPECT_THAT(failure<WarpReturnsBeforeBarrier>({.threads = 96}, {warp}), HasSubstr("has returned"));
  }
  EXPECT_EQ(failure<WarpReturnsBeforeBarrier>({.threads = 96}, {3}), "");
}

/// Threads of a warp, or warps of a block, at different collectives.
struct Diverging {
  static constexpr const char* kName = "diverging";
  using Params = Where;
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    if (simt::thread_index() == p.skip_thread) {
      simt::sync_warp();
    } else {
      (void)simt::warp_sum(1);
    }
  }
};
struct DivergingBarriers {
  static constexpr const char* kName = "diverging_barriers";
  using Params = Where;
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    if (simt::warp_index() == p.skip_thread) {
      simt::sync_block();
    } else {
      simt::sync_block();
    }
  }
};

TEST(Emulator, FindsDivergentCollectives) {
  EXPECT_THAT(failure<Diverging>({.threads = 64}, {33}),
              AllOf(HasSubstr("sync_warp"), HasSubstr("warp_sum")));
  EXPECT_THAT(failure<DivergingBarriers>({.threads = 64}, {1}), HasSubstr("sync_block"));
  EXPECT_EQ(failure<Diverging>({.threads = 64}, {64}), "");
}

/// Every warp operation, each thread's results to out[thread][...].
struct WarpOperations {
  static constexpr const char* kName = "warp_operations";
  struct Params {
    int* out;  // [threads][10]
  };
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    const int lane = simt::lane_index();
    int* out = p.out + 10 * simt::thread_index();
    out[0] = simt::shuffle(lane, 3);
    out[1] = simt::shuffle_xor(lane, 5);
    out[2] = simt::shuffle_down(lane, 2);
    out[3] = simt::shuffle_up(lane, 2);
    out[4] = static_cast<int>(simt::ballot(lane % 3 == 0));
    out[5] = simt::any(lane == 31) + 2 * simt::all(lane < 31);
    out[6] = simt::warp_sum(lane);
    out[7] = simt::warp_sum<4>(lane);
    out[8] = simt::warp_max(lane * 7 % 32);
    out[9] = simt::warp_min<8>(lane);
  }
};

TEST(Emulator, WarpOperations) {
  const auto device = open_emulator();
  const auto stream = device->create_stream();
  const Buffer out = device->allocate(64 * 10 * sizeof(int), "out");
  stream->launch<WarpOperations>({.threads = 64}, {out.as<int>()});
  std::vector<int> r(640);
  stream->copy(r.data(), out.as(), out.bytes());
  stream->synchronize();
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    EXPECT_THAT(std::vector(&r[10 * thread], &r[10 * thread] + 10),
                ElementsAre(3, lane ^ 5, lane > 29 ? lane : lane + 2, lane < 2 ? lane : lane - 2,
                            static_cast<int>(0x49249249u), 1, 496, 16 * (lane / 4) + 6, 31, lane / 8 * 8));
  }
}

#ifdef REDLITE_ASAN
/// Writes one element past what it was given: of shared, dynamic or global memory.
struct OutOfRange {
  static constexpr const char* kName = "out_of_range";
  struct Params {
    int* x;  // [32]
    int what;
  };
  struct Shared {
    int values[32];
  };
  static RL_DEVICE void run(const Params& p, Shared& shared) {
    int* memory = p.what == 0 ? shared.values : p.what == 1 ? simt::dynamic_shared<int>() : p.x;
    (void)simt::warp_sum(1);
    memory[simt::thread_index() + 1] = 1;
  }
};

TEST(EmulatorDeathTest, AddressSanitizerSeesTheEndsOfMemory) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const int what : {0, 1, 2}) {
    EXPECT_DEATH(
        {
          const auto device = open_emulator({.threads = 1});
          const auto stream = device->create_stream();
          const Buffer x = device->allocate(32 * sizeof(int), "x");
          stream->launch<OutOfRange>({.threads = 32, .dynamic_shared = 32 * sizeof(int)},
                                     {x.as<int>(), what});
          stream->synchronize();
        },
        "use-after-poison|buffer-overflow");
  }
}
#endif

/// Shared memory handed round a block through barriers; the warps' and blocks' order must not matter.
struct Rotate {
  static constexpr const char* kName = "rotate";
  struct Params {
    int* out;  // [grid][threads]
    int rounds;
  };
  struct Shared {
    int values[256];
  };
  static RL_DEVICE void run(const Params& p, Shared& shared) {
    const int n = simt::block_threads(), thread = simt::thread_index();
    int* dynamic = simt::dynamic_shared<int>();
    int value = thread;
    for (int round = 0; round < p.rounds; ++round) {
      shared.values[thread] = value;
      simt::sync_block();
      dynamic[thread] = shared.values[(thread + 1) % n];
      simt::sync_block();
      value = dynamic[thread];
    }
    p.out[static_cast<int>(simt::block_index().x) * n + thread] = value;
  }
};

TEST(Emulator, SharedMemoryAndBarriers) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto device = open_emulator({.seed = seed, .threads = 2});
    const auto stream = device->create_stream();
    for (const int threads : {32, 64, 256}) {
      constexpr int grid = 11, rounds = 3;
      std::vector<int> r(static_cast<size_t>(grid * threads));
      const Buffer out = device->allocate(r.size() * sizeof(int), "out");
      stream->launch<Rotate>({.grid = {grid},
                              .threads = static_cast<uint32_t>(threads),
                              .dynamic_shared = static_cast<size_t>(threads) * sizeof(int)},
                             {out.as<int>(), rounds});
      stream->copy(r.data(), out.as(), out.bytes());
      stream->synchronize();
      for (int i = 0; i < grid * threads; ++i) ASSERT_EQ(r[i], (i % threads + rounds) % threads) << i;
    }
  }
}

}  // namespace

RL_EMULATOR_KERNEL(EarlyReturnBeforeBarrier);
RL_EMULATOR_KERNEL(WarpReturnsBeforeBarrier);
RL_EMULATOR_KERNEL(Diverging);
RL_EMULATOR_KERNEL(DivergingBarriers);
RL_EMULATOR_KERNEL(WarpOperations);
RL_EMULATOR_KERNEL(Rotate);
#ifdef REDLITE_ASAN
RL_EMULATOR_KERNEL(OutOfRange);
#endif

}  // namespace redlite::gpu
