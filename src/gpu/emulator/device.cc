#include "gpu/device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/error.h"
#include "gpu/emulator/executor.h"
#include "gpu/emulator/guarded_memory.h"

namespace redlite::gpu {
namespace {

using emulator::Executor;
using emulator::Node;
using emulator::NodePtr;

/// Captured work: nodes in the order of capture, so that predecessors come first.
struct EmulatorGraph {
  struct Step {
    std::function<void()> work;
    std::vector<size_t> after;
    std::shared_ptr<const emulator::Launch> launch;  ///< what `work` launches; nullptr if it is no launch
  };

  std::vector<Step> steps;
  size_t n_kernels = 0;
  bool ended = false;  ///< the capture is over, also for the streams that joined it
};

/// As on a GPU it may go while it is replayed.
class EmulatorGraphHandle : public Graph {
 public:
  explicit EmulatorGraphHandle(std::shared_ptr<const EmulatorGraph> captured) : graph(std::move(captured)) {}
  size_t kernels() const override { return graph->n_kernels; }

  std::shared_ptr<const EmulatorGraph> graph;
};

constexpr size_t kNoStep = SIZE_MAX;

class EmulatorEvent : public Event {
 public:
  explicit EmulatorEvent(Executor& executor) : executor_(executor) {}

  bool done() override {
    executor_.throw_failure();
    return !node || executor_.done(node);
  }
  double milliseconds_since(const Event& start) const override {
    const auto& from = static_cast<const EmulatorEvent&>(start);
    RL_CHECK(node && from.node, "an event that was never recorded");
    return node->finished_at - from.node->finished_at;
  }

  NodePtr node;
  std::shared_ptr<EmulatorGraph> graph;  ///< the capture in which it was recorded last
  size_t step = kNoStep;

 private:
  Executor& executor_;
};

class EmulatorDevice;

class EmulatorStream : public Stream {
 public:
  explicit EmulatorStream(EmulatorDevice& device) : device_(device) {}
  ~EmulatorStream() override;

  void copy(void* to, const void* from, size_t bytes) override;
  void fill(void* to, uint8_t value, size_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;
  void replay(const Graph& graph) override;
  bool idle() override;
  void synchronize(std::chrono::milliseconds limit) override;
  void launch_kernel(const Kernel& kernel, const Shape& shape, const void* params) override;

 private:
  /// Work that comes after all earlier work of this stream and, outside a capture, after `other`.
  void enqueue(std::function<void()> work, std::shared_ptr<const emulator::Launch> launch = nullptr,
               const NodePtr& other = nullptr);
  void leave_ended_capture();

  EmulatorDevice& device_;
  NodePtr last_;
  std::shared_ptr<EmulatorGraph> graph_;  ///< being captured
  bool started_capture_ = false;
  std::vector<size_t> last_steps_;  ///< the graph's steps that the next one follows
};

class EmulatorDevice : public Device {
 public:
  explicit EmulatorDevice(const EmulatorOptions& options)
      : options_(options), executor_(options.seed, options.threads) {
    info_.name = "emulator";
    info_.multiprocessors = 4;
    info_.total_memory = options.memory;
    info_.max_shared_bytes = size_t{227} << 10;
    info_.compute_capability = 90;
  }

  size_t free_memory() const override { return options_.memory - memory().device; }
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<EmulatorStream>(*this); }
  std::unique_ptr<Event> create_event() override { return std::make_unique<EmulatorEvent>(executor_); }

  const EmulatorOptions& options() const { return options_; }
  Executor& executor() { return executor_; }

 protected:
  void* do_allocate(size_t bytes) override {
    if (bytes > free_memory()) fail("the emulator's memory is full");
    return keep(bytes);
  }
  // Like CUDA's, they wait: an error may leave buffers behind into which something is still copied.
  void do_free(void* address, size_t) noexcept override {
    executor_.drain();
    blocks_.erase(address);
  }
  void* do_allocate_host(size_t bytes, void** on_device) override { return *on_device = keep(bytes); }
  void do_free_host(void* address, size_t) noexcept override {
    executor_.drain();
    blocks_.erase(address);
  }
  void* do_register(void* address, size_t, bool) override { return address; }
  void do_unregister(void*, size_t) noexcept override {}

 private:
  void* keep(size_t bytes) {
    emulator::GuardedMemory memory;
    try {
      memory.resize(bytes, options_.poison);
    } catch (const std::bad_alloc&) {
      fail("the system is out of memory");
    }
    void* address = memory.data();
    blocks_.emplace(address, std::move(memory));
    return address;
  }

  EmulatorOptions options_;
  std::map<void*, emulator::GuardedMemory> blocks_;
  Executor executor_;
};

EmulatorStream::~EmulatorStream() {
  // What is still queued may use memory that its owner frees next.
  try {
    if (last_) device_.executor().wait(last_, std::chrono::hours(1));
  } catch (const Error&) {  // was reported, or will be, by whoever uses the device next
  }
}

void EmulatorStream::leave_ended_capture() {
  if (!graph_ || !graph_->ended) return;
  graph_.reset();
  last_steps_.clear();
}

void EmulatorStream::enqueue(std::function<void()> work, std::shared_ptr<const emulator::Launch> launch,
                             const NodePtr& other) {
  leave_ended_capture();
  if (graph_) {
    const size_t number = graph_->steps.size();
    graph_->steps.push_back({std::move(work), std::exchange(last_steps_, {number}), std::move(launch)});
    return;
  }
  auto node = std::make_shared<Node>();
  node->work = std::move(work);
  if (last_) node->after.push_back(last_);
  if (other) node->after.push_back(other);
  last_ = node;
  device_.executor().submit(node);
}

void EmulatorStream::copy(void* to, const void* from, size_t bytes) {
  device_.check_fault(Call::copy, "copy");
  enqueue([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);  // of nothing, pointers may be null
  });
}

void EmulatorStream::fill(void* to, uint8_t value, size_t bytes) {
  device_.check_fault(Call::fill, "fill");
  enqueue([=] {
    if (bytes > 0) std::memset(to, value, bytes);
  });
}

void EmulatorStream::launch_kernel(const Kernel& kernel, const Shape& shape, const void* params) {
  device_.check_fault(Call::launch, "launch");
  if (shape.threads == 0 || shape.threads % emulator::kWarpSize != 0 ||
      shape.threads > emulator::kMaxThreads || size_t{shape.grid.x} * shape.grid.y * shape.grid.z == 0 ||
      shape.grid.y > 65535 || shape.grid.z > 65535 ||
      kernel.emulator.shared_bytes + shape.dynamic_shared > device_.info().max_shared_bytes) {
    fail("GPU: launch of {} with grid {} x {} x {}, {} threads, {} + {} bytes of shared memory", kernel.name,
         shape.grid.x, shape.grid.y, shape.grid.z, shape.threads, kernel.emulator.shared_bytes,
         shape.dynamic_shared);
  }
  auto launch = std::make_shared<emulator::Launch>();
  launch->kernel = &kernel;
  launch->shape = shape;
  launch->params.resize((kernel.params_bytes + sizeof(emulator::Launch::Chunk) - 1) /
                        sizeof(emulator::Launch::Chunk));
  std::memcpy(launch->params.data(), params, kernel.params_bytes);
  leave_ended_capture();
  if (graph_) ++graph_->n_kernels;
  EmulatorDevice& device = device_;
  enqueue([&device, launch] { device.executor().run_grid(*launch, device.options().poison); }, launch);
}

void EmulatorStream::record(Event& event) {
  leave_ended_capture();
  auto& e = static_cast<EmulatorEvent&>(event);
  e.graph = graph_;
  if (graph_) {
    if (last_steps_.size() != 1) enqueue([] {});
    e.step = last_steps_[0];
    return;
  }
  enqueue([] {});  // a node of its own, for its time
  e.node = last_;
}

void EmulatorStream::wait(const Event& event) {
  leave_ended_capture();
  const auto& e = static_cast<const EmulatorEvent&>(event);
  if (e.graph) {
    RL_CHECK(!graph_ || graph_ == e.graph, "an event of another capture");
    graph_ = e.graph;
    last_steps_.push_back(e.step);
    return;
  }
  RL_CHECK(!graph_, "a captured stream waits for an event recorded outside");
  if (e.node) enqueue([] {}, nullptr, e.node);
}

void EmulatorStream::begin_capture() {
  RL_CHECK(!graph_, "nested capture");
  graph_ = std::make_shared<EmulatorGraph>();
  started_capture_ = true;
}

std::unique_ptr<Graph> EmulatorStream::end_capture() {
  RL_CHECK(graph_ && started_capture_, "end_capture() on a stream that began none");
  enqueue([] {});
  auto graph = std::make_shared<EmulatorGraph>(*graph_);
  graph_->steps.clear();
  graph_->ended = true;
  graph_.reset();
  started_capture_ = false;
  last_steps_.clear();
  // Every step must be in front of the last one, else a stream that joined was not joined back.
  const std::vector<EmulatorGraph::Step>& steps = graph->steps;
  std::vector<bool> reached(steps.size());
  reached.back() = true;
  for (size_t i = steps.size(); i-- > 0;) {
    if (!reached[i]) fail("GPU: a stream that joined the capture was not joined back");
    for (const size_t before : steps[i].after) reached[before] = true;
  }
  return std::make_unique<EmulatorGraphHandle>(std::move(graph));
}

void EmulatorStream::replay(const Graph& graph) {
  device_.check_fault(Call::replay, "replay of a graph");
  leave_ended_capture();
  RL_CHECK(!graph_, "a replay while capturing");
  EmulatorDevice& device = device_;
  // Any order that respects the dependencies.
  enqueue([captured = static_cast<const EmulatorGraphHandle&>(graph).graph, &device] {
    const EmulatorGraph& g = *captured;
    std::vector<size_t> missing(g.steps.size());
    std::vector<std::vector<size_t>> followers(g.steps.size());
    std::vector<size_t> ready;
    for (size_t i = 0; i < g.steps.size(); ++i) {
      missing[i] = g.steps[i].after.size();
      for (const size_t before : g.steps[i].after) followers[before].push_back(i);
      if (missing[i] == 0) ready.push_back(i);
    }
    // Where the choice is by chance at each step, no branch stays behind for long; so one does in every third
    // replay, in which what has become ready last goes first.
    const bool newest_first = device.executor().random() % 3 == 0;
    while (!ready.empty()) {
      if (!newest_first) std::swap(ready[device.executor().random() % ready.size()], ready.back());
      const size_t step = ready.back();
      ready.pop_back();
      // Half of those that may start early do, with one block.
      if (followers[step].size() == 1 && g.steps[step].launch) {
        const EmulatorGraph::Step& next = g.steps[followers[step][0]];
        if (next.launch && next.launch->shape.early_start && next.after.size() == 1 &&
            device.executor().random() % 2 == 0) {
          device.executor().start_early(*next.launch, device.options().poison);
        }
      }
      g.steps[step].work();
      for (const size_t follower : followers[step]) {
        if (--missing[follower] == 0) ready.push_back(follower);
      }
    }
  });
}

bool EmulatorStream::idle() {
  device_.executor().throw_failure();
  return !last_ || device_.executor().done(last_);
}

void EmulatorStream::synchronize(std::chrono::milliseconds limit) {
  device_.check_fault(Call::synchronize, "synchronisation");
  if (last_ && !device_.executor().wait(last_, limit)) {
    fail("GPU: the work of a stream is not done after {} ms", limit.count());
  }
  device_.executor().throw_failure();
}

}  // namespace

std::unique_ptr<Device> open_emulator(const EmulatorOptions& options) {
  return std::make_unique<EmulatorDevice>(options);
}

}  // namespace redlite::gpu
