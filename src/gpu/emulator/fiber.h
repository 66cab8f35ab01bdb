#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

/// Fibers: stacks, and switches between them that the sanitizers know of.
namespace redlite::gpu::emulator {

struct Fiber {
  std::byte* low = nullptr;  ///< the stack's lowest address; a page in front of it is not accessible
  size_t size = 0;
  std::byte* top =
      nullptr;  ///< where the stack starts; differs between fibers so that they spread over the cache
  void* fake_stack = nullptr;  ///< AddressSanitizer's
  void* tsan = nullptr;        ///< ThreadSanitizer's
};

/// Stacks for reuse. Not thread-safe.
class FiberPool {
 public:
  FiberPool() = default;
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  Fiber* take();
  /// `fiber` may be the running one if nothing is taken before it is left for good.
  void give_back(Fiber* fiber) { free_.push_back(fiber); }
  /// Takes back all fibers, whatever they were doing.
  void reclaim_all();

 private:
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
};

/// Makes `fiber` the running one from its start: `entry` is called on its stack and must not return. What was
/// running can be continued at *from (not stored if from is nullptr: it ends) with switch_to().
void start(Fiber* fiber, void (*entry)(), void** from, Fiber* from_fiber);

/// Continues `context` on `fiber`, as above.
void switch_to(void* context, Fiber* fiber, void** from, Fiber* from_fiber);

/// The calling OS thread's own stack as a fiber, to be switched back to.
void describe_thread_stack(Fiber& fiber);

}  // namespace redlite::gpu::emulator
