#include "gpu/emulator/machine.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "gpu/emulator/fiber.h"
#include "gpu/emulator/guarded_memory.h"
#include "gpu/emulator/sanitizers.h"

namespace redlite::gpu::emulator {

constinit thread_local Lane* current_lane = nullptr;
constinit thread_local const Block* current_block = nullptr;

struct Warp {
  enum class State { ready, at_barrier, at_wait, ended };

  Multiprocessor::Impl* machine = nullptr;
  Lane* lanes = nullptr;  ///< its 32 threads
  uint32_t step = 1;      ///< control goes round in rising (1) or falling (31) order
  State state = State::ready;
  uint32_t arrived = 0;  ///< at the collective `site`
  uint32_t returned = 0;
  Lane* first = nullptr;  ///< goes on when the warp's turn comes
  Site site{};
  std::array<void*, kWarpSize> operands{};

  Lane* next(const Lane* lane) const { return lanes + (lane->thread + step) % kWarpSize; }
};

namespace {

bool same(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}
bool same(const Site& a, const Site& b) {
  return a.line == b.line && same(a.what, b.what) && same(a.file, b.file);
}

std::string describe(const Site& site) {
  const char* slash = std::strrchr(site.file, '/');
  return fmt::format("{} ({}:{})", site.what, slash != nullptr ? slash + 1 : site.file, site.line);
}

/// A small generator for orders (splitmix64).
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

struct Multiprocessor::Impl {
  std::array<Lane, kMaxThreads> lanes;
  std::array<Warp, kMaxThreads / kWarpSize> warps;
  std::array<Warp*, kMaxThreads / kWarpSize> order{};
  FiberPool fibers;
  Fiber scheduler;
  void* scheduler_context = nullptr;
  GuardedMemory fixed_shared, dynamic_shared;
  Block block;
  const Kernel* kernel = nullptr;
  const void* params = nullptr;
  std::string failure;
  uint64_t random = 0;
  uint64_t switches = 0;

  /// From a fiber (that ends if `from` is nullptr) to the scheduler.
  REDLITE_NO_ASAN void to_scheduler(void** from, Fiber* from_fiber) {
    ++switches;
    switch_to(scheduler_context, &scheduler, from, from_fiber);
  }
  /// To a thread that waits or has not begun.
  REDLITE_NO_ASAN void to_lane(Lane* to, void** from, Fiber* from_fiber) {
    ++switches;
    current_lane = to;
    if (to->context != nullptr) {
      switch_to(std::exchange(to->context, nullptr), to->fiber, from, from_fiber);
    } else {
      to->fiber = fibers.take();
      start(to->fiber, &run_threads, from, from_fiber);
    }
  }

  static void run_threads();
  std::string describe_thread(const Lane& lane) const {
    const Dim3& b = block.index;
    return fmt::format("kernel {}, block ({}, {}, {}), thread {}", kernel->name, b.x, b.y, b.z, lane.thread);
  }
  void run_warps();
  void leave_warp(Warp::State state);
  bool gather(const Site& site, void* operand);
};

namespace {

/// Keeps what the running thread did wrong; abandon_launch() follows.
void note_failure(const std::string& message) {
  Multiprocessor::Impl& machine = *current_lane->warp->machine;
  machine.failure = fmt::format("{}: {}", machine.describe_thread(*current_lane), message);
}

// Not inlined: the switch of a thread need not make room for their strings.
[[gnu::noinline]] void note_divergence(const Site& site, const Site& other) {
  note_failure(
      fmt::format("is at {} while other threads of its warp wait at {}", describe(site), describe(other)));
}
[[gnu::noinline]] void note_return(const Site& site, const Lane& returned) {
  note_failure(
      fmt::format("waits at {}, but thread {} of its warp has returned", describe(site), returned.thread));
}

/// Leaves the fiber for good: nothing on it is unwound, so nothing on it may own memory.
[[noreturn]] REDLITE_NO_ASAN void abandon_launch() {
  Lane* lane = current_lane;
  lane->warp->machine->to_scheduler(nullptr, lane->fiber);
  std::abort();  // the scheduler does not come back
}

}  // namespace

/// A fiber's life: runs a thread, then the next of its warp on the same stack if that has not begun, and ends
/// where control has to go elsewhere.
REDLITE_NO_ASAN void Multiprocessor::Impl::run_threads() {
  for (;;) {
    Lane* lane = current_lane;
    Warp& warp = *lane->warp;
    Impl& machine = *warp.machine;
    machine.kernel->emulator.run(machine.params, machine.fixed_shared.data());
    lane->returned = true;
    if (warp.arrived != 0) {
      note_failure(fmt::format("returned while other threads of its warp wait at {}", describe(warp.site)));
      abandon_launch();
    }
    Lane* next = warp.next(lane);
    if (++warp.returned == kWarpSize) {
      warp.state = Warp::State::ended;
      machine.fibers.give_back(lane->fiber);
      machine.to_scheduler(nullptr, lane->fiber);
    } else if (next->context == nullptr) {
      next->fiber = lane->fiber;
      current_lane = next;
    } else {
      machine.fibers.give_back(lane->fiber);
      machine.to_lane(next, nullptr, lane->fiber);
    }
  }
}

/// Counts the running thread in at a collective. True for the last one, which goes on at once; false for the
/// others, when control has come round to them after that.
bool Multiprocessor::Impl::gather(const Site& site, void* operand) {
  Lane* lane = current_lane;
  Warp& warp = *lane->warp;
  if (warp.arrived == 0) {
    warp.site = site;
  } else if (!same(site, warp.site)) {
    note_divergence(site, warp.site);
    abandon_launch();
  }
  warp.operands[lane->thread % kWarpSize] = operand;
  if (++warp.arrived == kWarpSize) {
    warp.arrived = 0;
    return true;
  }
  Lane* next = warp.next(lane);
  if (next->returned) {
    note_return(site, *next);
    abandon_launch();
  }
  to_lane(next, &lane->context, lane->fiber);
  return false;
}

void warp_collective(const Site& site, void (*complete)(void* const* operands), void* operand) {
  Warp& warp = *current_lane->warp;
  if (warp.machine->gather(site, operand)) complete(warp.operands.data());
}

void block_barrier(const Site& site) {
  Lane* lane = current_lane;
  Warp& warp = *lane->warp;
  Multiprocessor::Impl& machine = *warp.machine;
  if (!machine.gather(site, nullptr) || machine.block.threads == kWarpSize) return;
  machine.leave_warp(Warp::State::at_barrier);
}

void wait_for_previous(const Site& site) {
  Multiprocessor::Impl& machine = *current_lane->warp->machine;
  if (machine.gather(site, nullptr)) machine.leave_warp(Warp::State::at_wait);
}

/// From the last thread of a warp that has come to a barrier to the scheduler.
void Multiprocessor::Impl::leave_warp(Warp::State state) {
  Lane* lane = current_lane;
  lane->warp->state = state;
  lane->warp->first = lane;
  to_scheduler(&lane->context, lane->fiber);
}

/// Gives every warp its turn between barriers, until all have ended, one has failed, or (in a block that was
/// started early) some wait for the kernels in front and the others cannot go on without them.
void Multiprocessor::Impl::run_warps() {
  using State = Warp::State;
  const uint32_t n = block.threads / kWarpSize;
  for (;;) {
    for (uint32_t i = 0; i < n; ++i) std::swap(order[i], order[next_random(random) % n]);
    for (uint32_t i = 0; i < n; ++i) {
      if (order[i]->state != State::ready) continue;
      to_lane(order[i]->first, &scheduler_context, &scheduler);
      if (!failure.empty()) return;
    }
    const Warp* waiting = nullptr;
    const Warp* ended = nullptr;
    for (uint32_t i = 0; i < n; ++i) {
      if (warps[i].state == State::at_wait) return;
      (warps[i].state == State::ended ? ended : waiting) = &warps[i];
    }
    if (waiting == nullptr) return;
    for (uint32_t i = 0; i < n; ++i) {
      Warp& warp = warps[i];
      if (ended != nullptr || !same(warp.site, waiting->site)) {
        failure =
            fmt::format("kernel {}, block ({}, {}, {}), thread {}: waits at {}, but thread {} {}",
                        kernel->name, block.index.x, block.index.y, block.index.z, waiting->first->thread,
                        describe(waiting->site), (ended != nullptr ? ended : &warp)->lanes->thread,
                        ended != nullptr ? "has returned" : "at " + describe(warp.site));
        return;
      }
    }
    for (uint32_t i = 0; i < n; ++i) warps[i].state = State::ready;
  }
}

Multiprocessor::Multiprocessor() : impl_(std::make_unique<Impl>()) {
  describe_thread_stack(impl_->scheduler);
  for (uint32_t w = 0; w < impl_->warps.size(); ++w) {
    Warp& warp = impl_->warps[w];
    warp.machine = impl_.get();
    warp.lanes = &impl_->lanes[size_t{w} * kWarpSize];
    for (uint32_t i = 0; i < kWarpSize; ++i) {
      warp.lanes[i].thread = w * kWarpSize + i;
      warp.lanes[i].warp = &warp;
    }
  }
}

Multiprocessor::~Multiprocessor() = default;

uint64_t Multiprocessor::switches() const {
  return impl_->switches;
}

void Multiprocessor::prepare(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index,
                             uint64_t seed, bool poison) {
  Impl& m = *impl_;
  m.kernel = &kernel;
  m.params = params;
  m.fixed_shared.resize(kernel.emulator.shared_bytes, poison);
  m.dynamic_shared.resize(shape.dynamic_shared, poison);
  m.block = {index, shape.grid, shape.threads, m.dynamic_shared.data()};
  m.random = seed;
  for (uint32_t w = 0; w < shape.threads / kWarpSize; ++w) {
    Warp& warp = m.warps[w];
    const uint64_t r = next_random(m.random);
    warp.step = r & 1 ? 1 : kWarpSize - 1;
    warp.first = warp.lanes + (r >> 1) % kWarpSize;
    warp.state = Warp::State::ready;
    warp.arrived = warp.returned = 0;
    m.order[w] = &warp;
    for (uint32_t i = 0; i < kWarpSize; ++i) {
      warp.lanes[i].context = nullptr;
      warp.lanes[i].returned = false;
    }
  }
}

void Multiprocessor::run() {
  Impl& m = *impl_;
  current_block = &m.block;
  m.run_warps();
  current_block = nullptr;
  current_lane = nullptr;
  if (!m.failure.empty()) {
    m.fibers.reclaim_all();
    throw Error("GPU emulator: " + std::exchange(m.failure, {}));
  }
}

void Multiprocessor::run_block(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index,
                               uint64_t seed, bool poison) {
  prepare(kernel, shape, params, index, seed, poison);
  run();
}

void Multiprocessor::start_block(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index,
                                 uint64_t seed, bool poison) {
  prepare(kernel, shape, params, index, seed, poison);
  impl_->block.early = true;
  run();
}

void Multiprocessor::finish_block() {
  Impl& m = *impl_;
  m.block.early = false;
  for (uint32_t w = 0; w < m.block.threads / kWarpSize; ++w) {
    if (m.warps[w].state == Warp::State::at_wait) m.warps[w].state = Warp::State::ready;
  }
  run();
}

}  // namespace redlite::gpu::emulator
