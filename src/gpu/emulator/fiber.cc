#include "gpu/emulator/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#include "base/error.h"
#include "gpu/emulator/sanitizers.h"

namespace redlite::gpu::emulator {

namespace fc = boost::context::detail;

namespace {

#if defined(REDLITE_ASAN) || defined(REDLITE_TSAN)
constexpr size_t kStackBytes = size_t{128} << 10;
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif

/// What a switch hands to the other side.
struct Passed {
  void** from;  ///< where to store the context of the side that was left; may be nullptr
  void (*entry)();
};

/// Called by the side that has just come to run.
REDLITE_NO_ASAN void arrive(const fc::transfer_t& transfer, [[maybe_unused]] Fiber* self) {
  const auto* passed = static_cast<const Passed*>(transfer.data);
  if (passed->from != nullptr) *passed->from = transfer.fctx;
#ifdef REDLITE_ASAN
  __sanitizer_finish_switch_fiber(self == nullptr ? nullptr : self->fake_stack, nullptr, nullptr);
#endif
}

REDLITE_NO_ASAN void enter(fc::transfer_t transfer) {
  void (*entry)() = static_cast<const Passed*>(transfer.data)->entry;
  arrive(transfer, nullptr);
  entry();
  RL_CHECK(false, "a fiber returned");
}

REDLITE_NO_ASAN void jump(void* context, [[maybe_unused]] Fiber* to, Passed passed,
                          [[maybe_unused]] Fiber* from_fiber) {
#ifdef REDLITE_ASAN
  __sanitizer_start_switch_fiber(passed.from == nullptr ? nullptr : &from_fiber->fake_stack, to->low,
                                 to->size);
#endif
#ifdef REDLITE_TSAN
  __tsan_switch_to_fiber(to->tsan, 0);
#endif
  const fc::transfer_t transfer = fc::jump_fcontext(context, &passed);
  arrive(transfer, from_fiber);
}

}  // namespace

FiberPool::~FiberPool() {
  for (const std::unique_ptr<Fiber>& fiber : all_) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
#ifdef REDLITE_ASAN
    // Else whatever is mapped here next, a file say, would count as an old frame's guard.
    __asan_unpoison_memory_region(fiber->low, fiber->size);
#endif
    munmap(fiber->low - page, fiber->size + page);
#ifdef REDLITE_TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
  }
}

Fiber* FiberPool::take() {
  if (free_.empty()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, page, PROT_NONE);
    auto fiber = std::make_unique<Fiber>();
    fiber->low = static_cast<std::byte*>(memory) + page;
    fiber->size = kStackBytes;
    // 64 stacks a power of two apart would share a few sets of the cache.
    fiber->top = fiber->low + kStackBytes - 448 * (all_.size() % 37);
#ifdef REDLITE_TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    free_.push_back(fiber.get());
    all_.push_back(std::move(fiber));
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

void FiberPool::reclaim_all() {
  free_.clear();
  for (const std::unique_ptr<Fiber>& fiber : all_) {
#ifdef REDLITE_ASAN
    // The frames of whoever used it were left, not returned from.
    __asan_unpoison_memory_region(fiber->low, fiber->size);
#endif
    free_.push_back(fiber.get());
  }
}

REDLITE_NO_ASAN void start(Fiber* fiber, void (*entry)(), void** from, Fiber* from_fiber) {
  const fc::fcontext_t context =
      fc::make_fcontext(fiber->top, static_cast<size_t>(fiber->top - fiber->low), &enter);
  jump(context, fiber, {from, entry}, from_fiber);
}

REDLITE_NO_ASAN void switch_to(void* context, Fiber* fiber, void** from, Fiber* from_fiber) {
  jump(context, fiber, {from, nullptr}, from_fiber);
}

void describe_thread_stack(Fiber& fiber) {
#if defined(__linux__)
  pthread_attr_t attributes;
  void* low = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &low, &fiber.size);
    pthread_attr_destroy(&attributes);
  }
  fiber.low = static_cast<std::byte*>(low);
#endif
#ifdef REDLITE_TSAN
  fiber.tsan = __tsan_get_current_fiber();
#endif
}

}  // namespace redlite::gpu::emulator
