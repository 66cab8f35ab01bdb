#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpu/kernel.h"

/// The emulated multiprocessor: runs the threads of one block as fibers of one OS thread.
///
/// A thread runs until its first collective (a warp operation or a barrier). It leaves its operand there and
/// passes control to the next thread of its warp; the last one to arrive computes the results of all 32 and
/// runs on. A warp thus goes round in a ring, one switch for each thread and collective; a thread without
/// collectives costs no switch, for the next one runs on its stack. Warps take turns at block barriers.
namespace redlite::gpu::emulator {

inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxThreads = 1024;

struct Fiber;
struct Warp;

/// One thread of the running block; simt_emulator.h reads its numbers.
struct Lane {
  uint32_t thread = 0;  ///< in the block
  Warp* warp = nullptr;
  void* context = nullptr;  ///< where it goes on; nullptr: not started
  Fiber* fiber = nullptr;
  bool returned = false;
};

/// A collective: what it is called, and where.
struct Site {
  const char* what;
  const char* file;
  int line;
};

struct Block {
  Dim3 index;
  Dim3 grid;
  uint32_t threads = 0;
  std::byte* dynamic_shared = nullptr;
  bool early = false;  ///< the kernels in front have not run: stop where the block waits for them
};

extern constinit thread_local Lane* current_lane;
extern constinit thread_local const Block* current_block;

/// Waits until all threads of the warp have called it with the same site, then lets the last one call
/// `complete` with the operands of the 32 threads. An operand may hold the result, too.
void warp_collective(const Site& site, void (*complete)(void* const* operands), void* operand);

/// The barrier of the block.
void block_barrier(const Site& site);

/// simt::wait_for_previous() of a block that was started early: its warps stay here until finish_block().
void wait_for_previous(const Site& site);

/// Runs blocks of launches, one after another. One for each OS thread; not thread-safe.
class Multiprocessor {
 public:
  Multiprocessor();
  ~Multiprocessor();
  Multiprocessor(const Multiprocessor&) = delete;
  Multiprocessor& operator=(const Multiprocessor&) = delete;

  /// Runs block `index` to its end. Throws Error for what a kernel does wrong (divergent collectives).
  /// `seed` decides the order of its warps and threads.
  void run_block(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index, uint64_t seed,
                 bool poison);

  /// The same in two steps: up to where the block waits for the kernels in front of it, before these have
  /// run, and the rest.
  void start_block(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index, uint64_t seed,
                   bool poison);
  void finish_block();

  /// Switches between fibers since construction.
  uint64_t switches() const;

  struct Impl;

 private:
  void prepare(const Kernel& kernel, const Shape& shape, const void* params, Dim3 index, uint64_t seed,
               bool poison);
  void run();

  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::gpu::emulator
