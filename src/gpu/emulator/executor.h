#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/thread_pool.h"
#include "gpu/emulator/machine.h"

namespace redlite::gpu::emulator {

/// A kernel to run, with its parameters.
struct Launch {
  /// As parameters are aligned.
  struct alignas(16) Chunk {
    std::byte bytes[16];
  };
  const Kernel* kernel = nullptr;
  Shape shape;
  std::vector<Chunk> params;
};

/// A piece of work and what must be done before it.
struct Node {
  std::function<void()> work;
  std::vector<std::shared_ptr<Node>> after;
  bool done = false;
  double finished_at = 0;  ///< milliseconds of the steady clock
};
using NodePtr = std::shared_ptr<Node>;

/// Does submitted work in the background: one node at a time, picked by chance from those whose predecessors
/// are done, so that nobody comes to rely on an order that was not asked for. After a failure nothing more is
/// run, as on a GPU whose context is lost.
class Executor {
 public:
  Executor(uint64_t seed, int threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void submit(const NodePtr& node);
  /// False if `node` is still not done after `limit`. Throws the failure, if there was one.
  bool wait(const NodePtr& node, std::chrono::milliseconds limit);
  bool done(const NodePtr& node);
  /// Waits until nothing runs, nor ever will of what was submitted.
  void drain();
  void throw_failure();

  // For the work of nodes:

  /// Runs all blocks of a launch, in random order, on all threads.
  void run_grid(const Launch& launch, bool poison);
  /// Runs one block of a launch up to where it waits for the kernels in front of it; the next run_grid() of
  /// the same launch does the rest.
  void start_early(const Launch& launch, bool poison);
  uint64_t random() { return random_(); }

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<NodePtr> pending_;
  std::string failure_;
  bool stop_ = false;
  bool busy_ = false;

  // The executing thread's own.
  std::mt19937_64 random_;
  cpu::ThreadPool pool_;
  std::vector<std::unique_ptr<Multiprocessor>> machines_;  ///< one for each thread, made by it
  std::vector<uint32_t> order_;
  std::unique_ptr<Multiprocessor> early_machine_;
  const Launch* early_ = nullptr;
  uint32_t early_block_ = 0;

  std::thread thread_;  ///< last: it uses everything above
};

}  // namespace redlite::gpu::emulator
