#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"

namespace redlite::gpu {
namespace {

using Milliseconds = std::chrono::milliseconds;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();  // a failure that is not the device's end leaves no trace for the next call
  fail("GPU: {}: {}", what, cudaGetErrorString(result));
}

class CudaGraph : public Graph {
 public:
  CudaGraph(cudaGraphExec_t graph, size_t kernels) : graph_(graph), kernels_(kernels) {}
  ~CudaGraph() override { (void)cudaGraphExecDestroy(graph_); }
  size_t kernels() const override { return kernels_; }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
  size_t kernels_;
};

class CudaEvent : public Event {
 public:
  CudaEvent() { check(cudaEventCreate(&event_), "an event"); }
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  bool done() override {
    const cudaError_t result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(result, "work before an event");
    return true;
  }
  double milliseconds_since(const Event& start) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(start).event_, event_),
          "time between events");
    return milliseconds;
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream : public Stream {
 public:
  CudaStream(const Device& device, std::map<const void*, size_t>& allowed_shared)
      : device_(device), allowed_shared_(allowed_shared) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }
  ~CudaStream() override {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }

  void copy(void* to, const void* from, size_t bytes) override {
    device_.check_fault(Call::copy, "copy");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    device_.check_fault(Call::fill, "fill");
    check(cudaMemsetAsync(to, value, bytes, stream_), "fill");
  }
  void record(Event& event) override {
    check(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "recording of an event");
  }
  void wait(const Event& event) override {
    check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).get(), 0), "wait for an event");
  }

  void begin_capture() override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture of a graph");
  }
  std::unique_ptr<Graph> end_capture() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "capture of a graph");
    size_t n = 0;
    check(cudaGraphGetNodes(graph, nullptr, &n), "a graph's nodes");
    std::vector<cudaGraphNode_t> nodes(n);
    check(cudaGraphGetNodes(graph, nodes.data(), &n), "a graph's nodes");
    size_t kernels = 0;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      check(cudaGraphNodeGetType(node, &type), "a graph's node");
      kernels += type == cudaGraphNodeTypeKernel;
    }
    cudaGraphExec_t executable = nullptr;
    const cudaError_t result = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(result, "instantiation of a graph");
    auto made = std::make_unique<CudaGraph>(executable, kernels);
    check(cudaGraphUpload(executable, stream_), "upload of a graph");
    return made;
  }
  void replay(const Graph& graph) override {
    device_.check_fault(Call::replay, "replay of a graph");
    check(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).get(), stream_), "launch of a graph");
  }

  bool idle() override {
    const cudaError_t result = cudaStreamQuery(stream_);
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(result, "work on the device");
    return true;
  }
  /// Polls, because waking a sleeping thread takes longer than a token's last kernel.
  void synchronize(Milliseconds limit) override {
    device_.check_fault(Call::synchronize, "synchronisation");
    const auto end = std::chrono::steady_clock::now() + limit;
    for (int polls = 0;; ++polls) {
      const cudaError_t result = cudaStreamQuery(stream_);
      if (result != cudaErrorNotReady) return check(result, "work on the device");
      (void)cudaGetLastError();
      if (polls % 64 == 63 && std::chrono::steady_clock::now() > end) {
        fail("GPU: the work of a stream is not done after {} ms", limit.count());
      }
      if (polls > 100000) std::this_thread::yield();
    }
  }

  void launch_kernel(const Kernel& kernel, const Shape& shape, const void* params) override {
    device_.check_fault(Call::launch, "launch");
    RL_CHECK(kernel.cuda != nullptr, "kernel {} is not built for CUDA", kernel.name);
    cudaLaunchConfig_t config{};
    config.gridDim = {shape.grid.x, shape.grid.y, shape.grid.z};
    config.blockDim = {shape.threads, 1, 1};
    config.dynamicSmemBytes = shape.dynamic_shared;
    config.stream = stream_;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    if (shape.early_start) {
      config.attrs = &early;
      config.numAttrs = 1;
    }
    // Raised only: a captured launch needs it again whenever it runs.
    size_t& allowed = allowed_shared_[kernel.cuda];
    if (shape.dynamic_shared > std::max(allowed, size_t{32} << 10)) {
      check(cudaFuncSetAttribute(kernel.cuda, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.dynamic_shared)),
            kernel.name);
      allowed = shape.dynamic_shared;
    }
    void* arguments[] = {const_cast<void*>(params)};
    const cudaError_t result = cudaLaunchKernelExC(&config, kernel.cuda, arguments);
    if (result != cudaSuccess) {
      (void)cudaGetLastError();
      fail("GPU: launch of {} (grid {} x {} x {}, {} threads, {} bytes of dynamic shared memory): {}",
           kernel.name, shape.grid.x, shape.grid.y, shape.grid.z, shape.threads, shape.dynamic_shared,
           cudaGetErrorString(result));
    }
  }

 private:
  const Device& device_;
  cudaStream_t stream_ = nullptr;
  std::map<const void*, size_t>& allowed_shared_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) {
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
      fail("no NVIDIA driver is installed; --backend cpu runs without one");
    }
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) {
      (void)cudaGetLastError();
      fail("no CUDA device can be used ({}); --backend cpu runs without one", cudaGetErrorString(result));
    }
    if (index < 0 || index >= count) fail("CUDA device {} of {}", index, count);
    check(cudaSetDevice(index), "choice of the device");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, index), "the device's properties");
    info_.name = properties.name;
    info_.multiprocessors = properties.multiProcessorCount;
    info_.total_memory = properties.totalGlobalMem;
    info_.max_shared_bytes = properties.sharedMemPerBlockOptin;
    info_.compute_capability = 10 * properties.major + properties.minor;
    if (info_.compute_capability < 80) {
      fail("{} has compute capability {}.{}; Red Lite needs 8.0 or later", info_.name, properties.major,
           properties.minor);
    }
  }

  size_t free_memory() const override {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "the device's free memory");
    return free;
  }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<CudaStream>(*this, allowed_shared_);
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<CudaEvent>(); }

 protected:
  void* do_allocate(size_t bytes) override {
    void* address = nullptr;
    check(cudaMalloc(&address, bytes), "allocation");
    return address;
  }
  void do_free(void* address, size_t) noexcept override { (void)cudaFree(address); }
  void* do_allocate_host(size_t bytes, void** on_device) override {
    void* address = nullptr;
    check(cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "allocation of page-locked memory");
    const cudaError_t result = cudaHostGetDevicePointer(on_device, address, 0);
    if (result != cudaSuccess) (void)cudaFreeHost(address);
    check(result, "the device's address of host memory");
    return address;
  }
  void do_free_host(void* address, size_t) noexcept override { (void)cudaFreeHost(address); }
  void* do_register(void* address, size_t bytes, bool read_only) override {
    check(cudaHostRegister(
              address, bytes,
              cudaHostRegisterMapped | (read_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault)),
          "registration of host memory");
    void* on_device = nullptr;
    const cudaError_t result = cudaHostGetDevicePointer(&on_device, address, 0);
    if (result != cudaSuccess) (void)cudaHostUnregister(address);
    check(result, "the device's address of host memory");
    return on_device;
  }
  void do_unregister(void* address, size_t) noexcept override { (void)cudaHostUnregister(address); }

 private:
  std::map<const void*, size_t> allowed_shared_;  ///< dynamic shared memory that a kernel may have by now
};

}  // namespace

std::unique_ptr<Device> open_cuda(int index) {
  return std::make_unique<CudaDevice>(index);
}

bool built_with_cuda() {
  return true;
}

}  // namespace redlite::gpu
