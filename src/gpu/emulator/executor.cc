#include "gpu/emulator/executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace redlite::gpu::emulator {

Executor::Executor(uint64_t seed, int threads)
    : random_(seed),
      pool_(threads),
      machines_(static_cast<size_t>(pool_.size())),
      thread_([this] { loop(); }) {}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Executor::submit(const NodePtr& node) {
  throw_failure();
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(node);
  }
  changed_.notify_all();
}

bool Executor::wait(const NodePtr& node, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool over = changed_.wait_for(lock, limit, [&] { return node->done || !failure_.empty(); });
  if (!failure_.empty()) throw Error(failure_);
  return over;
}

bool Executor::done(const NodePtr& node) {
  const std::lock_guard lock(mutex_);
  return node->done;
}

void Executor::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && (pending_.empty() || !failure_.empty()); });
}

void Executor::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

void Executor::loop() {
  std::unique_lock lock(mutex_);
  std::vector<size_t> ready;
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!pending_.empty() && failure_.empty()); });
    if (stop_) return;
    ready.clear();
    for (size_t i = 0; i < pending_.size(); ++i) {
      const std::vector<NodePtr>& after = pending_[i]->after;
      if (std::all_of(after.begin(), after.end(), [](const NodePtr& n) { return n->done; }))
        ready.push_back(i);
    }
    // Whatever is waited for was submitted before, so something is always ready.
    RL_CHECK(!ready.empty(), "{} nodes wait for each other", pending_.size());
    const size_t chosen = ready[random_() % ready.size()];
    const NodePtr node = pending_[chosen];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(chosen));
    busy_ = true;
    lock.unlock();
    std::string failure;
    try {
      node->work();
    } catch (const std::exception& e) {
      failure = e.what();
    }
    lock.lock();
    busy_ = false;
    node->work = nullptr;
    node->after.clear();
    node->done = true;
    node->finished_at =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    if (!failure.empty()) failure_ = std::move(failure);
    changed_.notify_all();
  }
}

namespace {

Dim3 block_index(const Dim3& grid, uint32_t block) {
  return {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
}

uint32_t n_blocks(const Dim3& grid) {
  return grid.x * grid.y * grid.z;
}

}  // namespace

void Executor::start_early(const Launch& launch, bool poison) {
  if (early_ != nullptr) return;  // one at a time: that one's turn is next
  if (!early_machine_) early_machine_ = std::make_unique<Multiprocessor>();
  early_ = &launch;
  early_block_ = static_cast<uint32_t>(random_() % n_blocks(launch.shape.grid));
  early_machine_->start_block(*launch.kernel, launch.shape, launch.params.data(),
                              block_index(launch.shape.grid, early_block_), random_(), poison);
}

void Executor::run_grid(const Launch& launch, bool poison) {
  const Dim3 grid = launch.shape.grid;
  order_.resize(n_blocks(grid));
  std::iota(order_.begin(), order_.end(), 0u);
  std::shuffle(order_.begin(), order_.end(), random_);
  if (early_ == &launch) {
    early_ = nullptr;
    std::erase(order_, early_block_);
    early_machine_->finish_block();
  }
  const uint64_t seed = random_();
  std::mutex failure_mutex;
  std::string failure;
  const int n = static_cast<int>(order_.size());
  // A block of a small kernel takes about as long as waking a thread.
  const int grain = std::max(1, n / (8 * pool_.size()));
  pool_.run(n, grain, [&](int first, int last, int thread) noexcept {
    try {
      std::unique_ptr<Multiprocessor>& machine = machines_[static_cast<size_t>(thread)];
      if (!machine) machine = std::make_unique<Multiprocessor>();
      for (int i = first; i < last; ++i) {
        const uint32_t block = order_[static_cast<size_t>(i)];
        machine->run_block(*launch.kernel, launch.shape, launch.params.data(), block_index(grid, block),
                           seed + block, poison);
      }
    } catch (const std::exception& e) {
      const std::lock_guard lock(failure_mutex);
      failure = e.what();
    }
  });
  if (!failure.empty()) throw Error(failure);
}

}  // namespace redlite::gpu::emulator
