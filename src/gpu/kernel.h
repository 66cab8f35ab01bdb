#pragma once

#include <cstddef>
#include <cstdint>

/// How a kernel is declared, launched and found in both back ends.
///
/// A kernel is a struct, declared in a header that any code may include and defined in a source file of
/// gpu/kernels/ that g++ compiles for the emulator and nvcc for CUDA:
///
///     struct Scale {                                  // scale.h
///       static constexpr const char* kName = "scale";
///       struct Params {                               // what the launch passes; trivially copyable
///         const float* x;                             // [n]
///         float* y;                                   // [n]
///         int n;
///       };
///       struct Shared;                                // memory of a block's threads, or an empty struct
///       static RL_RUN void run(const Params& p, Shared& shared);  // what one thread does
///     };
///
///     struct Scale::Shared {};                        // scale.cc, which includes gpu/simt.h
///     RL_RUN void Scale::run(const Params& p, Shared&) { ... }
///     RL_KERNEL(Scale);                               // last in the file; once for each instance of a
///     template
///
///     stream.launch<Scale>({.grid = {blocks}, .threads = 128}, {.x = x, .y = y, .n = n});
///
/// Kernels that share much of their code can be one: each has kName and Params, and as PartOf the kernel that
/// runs it, whose function of(params) makes its own Params of theirs.
#ifdef __CUDACC__
#define RL_DEVICE __device__
// Always inlined into the kernel: of any other __device__ function with external linkage nvcc leaves an empty
// host copy behind, which the linker would take for, or hold against, the emulator's.
#define RL_RUN __device__ __forceinline__
#define RL_HOST_DEVICE __host__ __device__
#else
#define RL_DEVICE
#define RL_RUN
#define RL_HOST_DEVICE
#endif

namespace redlite::gpu {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

/// A grid of blocks of `threads` threads (a multiple of 32, at most 1024).
struct Shape {
  Dim3 grid = {};
  uint32_t threads = 32;
  size_t dynamic_shared = 0;  ///< bytes of simt::dynamic_shared(), besides the kernel's Shared
  /// May start before the kernel in front of it in the stream has ended (CUDA: programmatic dependent
  /// launch). Such a kernel calls simt::wait_for_previous() before it touches anything an earlier kernel
  /// wrote, in every block, also where it then returns at once.
  bool early_start = false;
};

/// What the emulator needs to run one thread of a kernel.
struct EmulatorKernel {
  void (*run)(const void* params, void* shared);
  size_t shared_bytes;
};

/// A kernel as the back ends see it.
struct Kernel {
  const char* name;
  size_t params_bytes;
  EmulatorKernel emulator;
  const void* cuda;  ///< the host-side handle of its __global__ function; nullptr where CUDA was not built
};

// Defined by RL_KERNEL in the kernel's source file, where the one or the other compiler reads it.
template <typename K>
EmulatorKernel emulator_kernel();
template <typename K>
const void* cuda_kernel();

template <typename K>
const Kernel& kernel() {
#ifdef REDLITE_CUDA
  static const Kernel k{K::kName, sizeof(typename K::Params), emulator_kernel<K>(), cuda_kernel<K>()};
#else
  static const Kernel k{K::kName, sizeof(typename K::Params), emulator_kernel<K>(), nullptr};
#endif
  return k;
}

}  // namespace redlite::gpu
