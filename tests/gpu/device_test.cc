#include "gpu/device.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/simt.h"

namespace redlite::gpu {
namespace {

using testing::HasSubstr;

/// y[i] = a * x[i] + the sum of x over the 32 values around it
struct Example {
  static constexpr const char* kName = "example";
  struct Params {
    const float* x;  // [n]
    float* y;        // [n]
    float a;
    int n;
  };
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    const int i = static_cast<int>(simt::block_index().x) * simt::block_threads() + simt::thread_index();
    const float x = i < p.n ? p.x[i] : 0;
    const float sum = simt::warp_sum(x);
    if (i < p.n) p.y[i] = p.a * x + sum;
  }
};

/// Spins until the host sets a flag.
struct WaitForHost {
  static constexpr const char* kName = "wait_for_host";
  struct Params {
    const uint32_t* flag;
  };
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    while (simt::load_acquire_system(p.flag) == 0) {
    }
  }
};

/// x[i] += 1 in a launch that may start early; reads x before it waits for the launch in front if `too_soon`.
struct Increment {
  static constexpr const char* kName = "increment";
  struct Params {
    int* x;  // [grid][threads]
    bool too_soon;
  };
  struct Shared {};
  static RL_DEVICE void run(const Params& p, Shared&) {
    int* x = p.x + static_cast<int>(simt::block_index().x) * simt::block_threads() + simt::thread_index();
    const int before = p.too_soon ? *x : 0;
    simt::let_next_start();
    simt::wait_for_previous();
    *x = (p.too_soon ? before : *x) + 1;
  }
};

/// Values of x after a graph of 20 such launches.
std::vector<int> increments(uint64_t seed, bool too_soon) {
  const auto device = open_emulator({.seed = seed, .threads = 1});
  const auto stream = device->create_stream();
  std::vector<int> values(3 * 64);
  const Buffer x = device->allocate(values.size() * sizeof(int), "x");
  stream->begin_capture();
  for (int i = 0; i < 20; ++i) {
    stream->launch<Increment>({.grid = {3}, .threads = 64, .early_start = true}, {x.as<int>(), too_soon});
  }
  const auto graph = stream->end_capture();
  stream->fill(x.as(), 0, x.bytes());
  stream->replay(*graph);
  stream->copy(values.data(), x.as(), x.bytes());
  stream->synchronize();
  return values;
}

TEST(Device, EarlyStartShowsWhatIsReadTooSoon) {
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_THAT(increments(seed, false), testing::Each(20)) << seed;
    EXPECT_THAT(increments(seed, true), testing::Contains(testing::Lt(20))) << seed;
  }
}

TEST(Device, RunsAKernel) {
  const auto device = open_emulator();
  const auto stream = device->create_stream();
  constexpr int n = 1000;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i % 17);
  const Buffer dx = device->allocate(n * sizeof(float), "x"), dy = device->allocate(n * sizeof(float), "y");
  stream->copy(dx.as(), x.data(), dx.bytes());
  stream->launch<Example>({.grid = {(n + 127) / 128}, .threads = 128},
                          {.x = dx.as<float>(), .y = dy.as<float>(), .a = 3, .n = n});
  stream->copy(y.data(), dy.as(), dy.bytes());
  stream->synchronize();
  for (int i = 0; i < n; ++i) {
    float sum = 0;
    for (int j = i / 32 * 32; j < i / 32 * 32 + 32 && j < n; ++j) sum += x[j];
    ASSERT_EQ(y[i], 3 * x[i] + sum) << i;
  }
}

TEST(Device, ReplaysACapturedGraph) {
  const auto device = open_emulator();
  const auto first = device->create_stream(), second = device->create_stream();
  constexpr int n = 32;
  const Buffer x = device->allocate(n * sizeof(float), "x"), y = device->allocate(n * sizeof(float), "y"),
               z = device->allocate(n * sizeof(float), "z");
  const Shape shape{.grid = {1}, .threads = 32};
  const auto forked = device->create_event(), joined = device->create_event();
  first->begin_capture();
  first->launch<Example>(shape, {x.as<float>(), y.as<float>(), 1, n});
  first->record(*forked);
  second->wait(*forked);
  second->launch<Example>(shape, {y.as<float>(), z.as<float>(), 0, n});
  second->record(*joined);
  first->wait(*joined);
  first->launch<Example>(shape, {z.as<float>(), x.as<float>(), 1, n});
  const auto graph = first->end_capture();
  EXPECT_EQ(graph->kernels(), 3u);

  std::vector<float> values(n, 1);
  first->copy(x.as(), values.data(), x.bytes());
  for (int i = 0; i < 2; ++i) first->replay(*graph);
  first->copy(values.data(), x.as(), x.bytes());
  first->synchronize();
  // y = 33 x, z = 32 y, x = 33 z
  const float step = 33.0f * 32 * 33;
  EXPECT_THAT(values, testing::Each(step * step));
}

TEST(Device, FindsAStreamThatIsNotJoinedBack) {
  const auto device = open_emulator();
  const auto first = device->create_stream(), second = device->create_stream();
  const Buffer x = device->allocate(4, "x");
  const auto forked = device->create_event();
  first->begin_capture();
  first->record(*forked);
  second->wait(*forked);
  second->fill(x.as(), 0, 4);
  EXPECT_THROW(first->end_capture(), Error);
}

TEST(Device, CountsMemoryAndNamesWhatDidNotFit) {
  const auto device = open_emulator({.memory = 1000});
  {
    const Buffer a = device->allocate(600, "a");
    EXPECT_EQ(device->memory().device, 600u);
    try {
      (void)device->allocate(600, "the expert cache");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("the expert cache"));
    }
    EXPECT_EQ(device->free_memory(), 400u);
  }
  EXPECT_EQ(device->memory().device, 0u);
  EXPECT_EQ(device->memory().device_peak, 600u);
}

TEST(Device, InjectsFaults) {
  const auto device = open_emulator();
  const auto stream = device->create_stream();
  const Buffer a = device->allocate(16, "a");
  device->set_fault_hook([](Call call) { return call == Call::fill || call == Call::allocate; });
  EXPECT_THROW(stream->fill(a.as(), 0, 16), Error);
  EXPECT_THROW((void)device->allocate(16, "b"), Error);
  EXPECT_EQ(device->memory().device, 16u);
  device->set_fault_hook({});
  stream->fill(a.as(), 0, 16);
  stream->synchronize();
}

TEST(Device, SynchronizeGivesUp) {
  const auto device = open_emulator();
  const auto stream = device->create_stream();
  const HostBuffer flag = device->allocate_host(4, "flag");
  *flag.host<uint32_t>() = 0;
  stream->launch<WaitForHost>({}, {flag.on_device<uint32_t>()});
  EXPECT_THROW(stream->synchronize(std::chrono::milliseconds(20)), Error);
  simt::store_release_system(flag.host<uint32_t>(), 1);
  stream->synchronize();
}

// Memory that copies use may go with a scope that an error ends.
TEST(Device, AScopeWaitsForItsCopiesWhenAnErrorEndsIt) {
  const auto device = open_emulator({.threads = 1});
  const auto stream = device->create_stream();
  const Buffer buffer = device->allocate(size_t{32} << 20, "a test");
  for (int i = 0; i < 4; ++i) {
    bool fails = true;
    device->set_fault_hook(
        [&](Call call) { return call == Call::synchronize && std::exchange(fails, false); });
    const auto copy_and_fail = [&] {
      const std::vector<char> values(buffer.bytes(), 1);
      const WaitAtExit wait(*stream);
      stream->copy(buffer.as(), values.data(), values.size());
      stream->synchronize();
    };
    EXPECT_THROW(copy_and_fail(), Error);
    EXPECT_TRUE(stream->idle());
  }
}

}  // namespace
RL_EMULATOR_KERNEL(Example);
RL_EMULATOR_KERNEL(Increment);
RL_EMULATOR_KERNEL(WaitForHost);
}  // namespace redlite::gpu
