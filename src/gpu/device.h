#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gpu/kernel.h"

/// The little of a GPU runtime that Red Lite needs, with two implementations: CUDA and an emulator that runs
/// the same kernels on the CPU. Everything a driver, the hardware or a lack of memory can cause throws
/// redlite::Error. Objects must not outlive the device they came from. A device and its streams are used by
/// one thread at a time.
namespace redlite::gpu {

class Device;

/// Device memory, 256-byte aligned, freed with the object. On the host only its address is of use.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();

  template <typename T = std::byte>
  T* as() const {
    return static_cast<T*>(address_);
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

/// Host memory that kernels can read and write in place, either allocated (page-locked) or registered: memory
/// of the caller's, such as the mapping of a file, which must stay mapped as long as this object lives.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(host_, other.host_);
    std::swap(on_device_, other.on_device_);
    std::swap(bytes_, other.bytes_);
    std::swap(registered_, other.registered_);
    return *this;
  }
  ~HostBuffer();

  /// The address on the host, and the one that kernels use.
  template <typename T = std::byte>
  T* host() const {
    return static_cast<T*>(host_);
  }
  template <typename T = std::byte>
  T* on_device() const {
    return static_cast<T*>(on_device_);
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  void* host_ = nullptr;
  void* on_device_ = nullptr;
  size_t bytes_ = 0;
  bool registered_ = false;
};

/// A point in a stream that other streams and the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  /// True when all work before the last record() is done (or nothing was recorded).
  virtual bool done() = 0;
  /// Milliseconds between the points `start` and this, both of them done. The emulator's are wall-clock time.
  virtual double milliseconds_since(const Event& start) const = 0;
};

/// Captured work, ready to be replayed with the pointers and values it was captured with.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual size_t kernels() const = 0;  ///< kernel launches in it
};

/// Work done in order; different streams in any order except as events say. Copies and launches return at
/// once; their errors may come from any later call.
class Stream {
 public:
  virtual ~Stream() = default;

  template <typename K>
  void launch(const Shape& shape, const typename K::Params& params) {
    static_assert(std::is_trivially_copyable_v<typename K::Params> && sizeof(typename K::Params) <= 4000);
    if constexpr (requires { typename K::PartOf; }) {
      launch<typename K::PartOf>(shape, K::PartOf::of(params));
    } else {
      launch_kernel(kernel<K>(), shape, &params);
    }
  }

  /// Copies between device, page-locked and pageable host memory, whichever the addresses are. Host memory
  /// must stay as it is until the copy is done.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void fill(void* to, uint8_t value, size_t bytes) = 0;

  virtual void record(Event& event) = 0;
  /// What follows in this stream starts after the event's last record().
  virtual void wait(const Event& event) = 0;

  /// Between the two calls work is recorded, not run. Other streams join by waiting for an event recorded
  /// during the capture, and this stream must wait for their last work before end_capture().
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  virtual void replay(const Graph& graph) = 0;

  /// True when all work is done. Throws if some of it failed.
  virtual bool idle() = 0;
  /// Returns when all work is done; throws when that takes longer than `limit`.
  virtual void synchronize(std::chrono::milliseconds limit = std::chrono::minutes(10)) = 0;

  virtual void launch_kernel(const Kernel& kernel, const Shape& shape, const void* params) = 0;
};

/// Captures what `encode` puts into the stream. An error in it ends the capture, too.
template <typename F>
std::unique_ptr<Graph> capture(Stream& stream, F&& encode) {
  stream.begin_capture();
  try {
    encode();
  } catch (...) {
    try {
      (void)stream.end_capture();
    } catch (const std::exception&) {  // the first error is the one that tells what happened
    }
    throw;
  }
  return stream.end_capture();
}

/// Waits at the end of its scope, also when an error ends that, until a stream's work is done. To be declared
/// behind host memory that copies use and that goes with the scope.
class WaitAtExit {
 public:
  explicit WaitAtExit(Stream& stream) : stream_(stream) {}
  WaitAtExit(const WaitAtExit&) = delete;
  WaitAtExit& operator=(const WaitAtExit&) = delete;
  ~WaitAtExit() {
    try {
      stream_.synchronize();
    } catch (const std::exception&) {  // the error that ended the scope is the one that tells what happened
    }
  }

 private:
  Stream& stream_;
};

struct DeviceInfo {
  std::string name;  ///< "NVIDIA H200", "emulator"
  int multiprocessors = 0;
  size_t total_memory = 0;
  size_t max_shared_bytes = 0;  ///< of a block, Shared and dynamic together
  int compute_capability = 0;   ///< 90 for sm_90
};

struct MemoryUse {
  size_t device = 0;       ///< bytes in Buffers
  size_t device_peak = 0;  ///< their maximum so far
  size_t host = 0;         ///< page-locked bytes allocated
  size_t registered = 0;   ///< bytes of the caller's memory registered
};

/// The calls a test can make fail.
enum class Call { allocate, allocate_host, register_host, copy, fill, launch, replay, synchronize };

class Device {
 public:
  virtual ~Device() = default;

  const DeviceInfo& info() const { return info_; }
  const MemoryUse& memory() const { return use_; }
  /// Bytes that can still be allocated, as the driver says.
  virtual size_t free_memory() const = 0;

  /// Uninitialised (the emulator fills it with 0xff: NaN in every float format). The message of a failure
  /// names `purpose`, e.g. "the expert cache".
  Buffer allocate(size_t bytes, std::string_view purpose);
  HostBuffer allocate_host(size_t bytes, std::string_view purpose);
  /// Makes [address, address + bytes) readable (and writable unless `read_only`) by kernels and copies
  /// without a detour. A mapped file is registered read-only.
  HostBuffer register_host(void* address, size_t bytes, bool read_only, std::string_view purpose);

  virtual std::unique_ptr<Stream> create_stream() = 0;
  virtual std::unique_ptr<Event> create_event() = 0;

  /// `hook` is asked before each call of the runtime and makes it fail, as if the driver had said so, by
  /// returning true. For tests; may be empty.
  void set_fault_hook(std::function<bool(Call)> hook) { fault_hook_ = std::move(hook); }

  /// Throws, as an error of the driver would, if the fault hook wants `call` to fail. For the
  /// implementations.
  void check_fault(Call call, std::string_view what) const;

 protected:
  friend class Buffer;
  friend class HostBuffer;
  // Throw on failure, except the releases.
  virtual void* do_allocate(size_t bytes) = 0;
  virtual void do_free(void* address, size_t bytes) noexcept = 0;
  virtual void* do_allocate_host(size_t bytes, void** on_device) = 0;
  virtual void do_free_host(void* address, size_t bytes) noexcept = 0;
  virtual void* do_register(void* address, size_t bytes, bool read_only) = 0;
  virtual void do_unregister(void* address, size_t bytes) noexcept = 0;

  DeviceInfo info_;

 private:
  MemoryUse use_;
  std::function<bool(Call)> fault_hook_;
};

struct EmulatorOptions {
  uint64_t seed = 1;                 ///< of the order in which blocks, warps and independent work run
  int threads = 0;                   ///< 0: one for each available core
  size_t memory = size_t{64} << 30;  ///< what allocate() gives out at most
  bool poison = true;                ///< fill buffers and shared memory with 0xff first
};

std::unique_ptr<Device> open_emulator(const EmulatorOptions& options = {});

/// Device number `index` of CUDA. Throws when this build has no CUDA, no driver is installed, or the device
/// cannot run our kernels.
std::unique_ptr<Device> open_cuda(int index = 0);

/// True if this build has CUDA (a driver may still be missing).
bool built_with_cuda();

}  // namespace redlite::gpu
