#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpu/kernel.h"

/// What kernels are written in, as CUDA. emulator/simt_emulator.h says what each does.
namespace redlite::gpu::simt {

inline constexpr int kWarpSize = 32;

// ---- where am I ----

__device__ inline int thread_index() {
  return static_cast<int>(threadIdx.x);
}
__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int warp_index() {
  return static_cast<int>(threadIdx.x / 32);
}
__device__ inline int block_threads() {
  return static_cast<int>(blockDim.x);
}
__device__ inline Dim3 block_index() {
  return {blockIdx.x, blockIdx.y, blockIdx.z};
}
__device__ inline Dim3 grid_size() {
  return {gridDim.x, gridDim.y, gridDim.z};
}

template <typename T>
__device__ inline T* dynamic_shared() {
  extern __shared__ uint4 redlite_dynamic_shared[];
  return reinterpret_cast<T*>(redlite_dynamic_shared);
}

// ---- barriers ----

__device__ inline void sync_block() {
  __syncthreads();
}
__device__ inline void sync_warp() {
  __syncwarp();
}

// ---- warp operations ----

template <typename T>
__device__ inline T shuffle(T value, int source) {
  return __shfl_sync(0xffffffffu, value, source);
}
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
__device__ inline T shuffle_down(T value, int delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}
template <typename T>
__device__ inline T shuffle_up(T value, int delta) {
  return __shfl_up_sync(0xffffffffu, value, delta);
}
__device__ inline uint32_t ballot(bool condition) {
  return __ballot_sync(0xffffffffu, condition);
}
__device__ inline bool any(bool condition) {
  return __any_sync(0xffffffffu, condition);
}
__device__ inline bool all(bool condition) {
  return __all_sync(0xffffffffu, condition);
}

template <int Width = 32, typename T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int half = Width / 2; half > 0; half /= 2) value += shuffle_xor(value, half);
  return value;
}
template <typename T>
__device__ inline T warp_sum(T value, int width) {
  for (int half = width / 2; half > 0; half /= 2) value += shuffle_xor(value, half);
  return value;
}
template <int Width = 32, typename T>
__device__ inline T warp_max(T value) {
  if constexpr (Width == 32 && std::is_same_v<T, uint32_t>) return __reduce_max_sync(0xffffffffu, value);
#pragma unroll
  for (int half = Width / 2; half > 0; half /= 2) {
    const T other = shuffle_xor(value, half);
    value = value < other ? other : value;
  }
  return value;
}
template <int Width = 32, typename T>
__device__ inline T warp_min(T value) {
  if constexpr (Width == 32 && std::is_same_v<T, uint32_t>) return __reduce_min_sync(0xffffffffu, value);
#pragma unroll
  for (int half = Width / 2; half > 0; half /= 2) {
    const T other = shuffle_xor(value, half);
    value = other < value ? other : value;
  }
  return value;
}

// ---- memory ----

struct alignas(16) U32x4 {
  uint32_t v[4];
};
struct alignas(8) U32x2 {
  uint32_t v[2];
};
struct alignas(16) F32x4 {
  float v[4];
};
struct alignas(8) F32x2 {
  float v[2];
};

template <typename T>
__device__ inline T load_once(const T* address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  T value;
  auto* words = reinterpret_cast<uint32_t*>(&value);
  if constexpr (sizeof(T) == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(address));
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(address));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(words[0]) : "l"(address));
  }
  return value;
}
template <typename T>
__device__ inline T load_cached(const T* address) {
  if constexpr (sizeof(T) == 16) {
    const uint4 value = __ldg(reinterpret_cast<const uint4*>(address));
    return *reinterpret_cast<const T*>(&value);
  } else if constexpr (sizeof(T) == 8) {
    const uint2 value = __ldg(reinterpret_cast<const uint2*>(address));
    return *reinterpret_cast<const T*>(&value);
  } else {
    return __ldg(address);
  }
}

__device__ inline void prefetch_l2(const void* address, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
               "r"(bytes)
               : "memory");
#else
  (void)address;
  (void)bytes;
#endif
}

namespace detail {
// CUDA's atomics and shuffles know unsigned long long, not uint64_t.
__device__ inline int* native(int32_t* p) {
  return p;
}
__device__ inline unsigned* native(uint32_t* p) {
  return p;
}
__device__ inline unsigned long long* native(uint64_t* p) {
  return reinterpret_cast<unsigned long long*>(p);
}
}  // namespace detail

template <typename T>
__device__ inline T atomic_add(T* address, T value) {
  return static_cast<T>(atomicAdd(detail::native(address), *detail::native(&value)));
}
template <typename T>
__device__ inline T atomic_or(T* address, T value) {
  return static_cast<T>(atomicOr(detail::native(address), *detail::native(&value)));
}
template <typename T>
__device__ inline T atomic_max(T* address, T value) {
  return static_cast<T>(atomicMax(detail::native(address), *detail::native(&value)));
}
template <typename T>
__device__ inline T atomic_min(T* address, T value) {
  return static_cast<T>(atomicMin(detail::native(address), *detail::native(&value)));
}
template <typename T>
__device__ inline T atomic_exchange(T* address, T value) {
  return static_cast<T>(atomicExch(detail::native(address), *detail::native(&value)));
}
template <typename T>
__device__ inline T atomic_compare_exchange(T* address, T expected, T value) {
  return static_cast<T>(
      atomicCAS(detail::native(address), *detail::native(&expected), *detail::native(&value)));
}

__device__ inline uint32_t load_acquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline uint32_t load_relaxed(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
__device__ inline void store_release(uint32_t* address, uint32_t value) {
  asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ inline uint32_t load_acquire_system(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline uint64_t load_acquire_system(const uint64_t* address) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}
__device__ inline void store_release_system(uint32_t* address, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ inline void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__device__ inline void fence_system() {
  __threadfence_system();
}

using SharedAddress = uint32_t;
__device__ inline SharedAddress shared_address(const void* shared) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(shared));
}
template <typename T = uint32_t>
__device__ inline T load_shared(SharedAddress address) {
  if constexpr (sizeof(T) == 16) {
    T value;
    auto* words = reinterpret_cast<uint32_t*>(&value);
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
    return value;
  } else if constexpr (sizeof(T) == 8) {
    T value;
    auto* words = reinterpret_cast<uint32_t*>(&value);
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address));
    return value;
  } else {
    static_assert(std::is_unsigned_v<T>);
    uint32_t value;
    if constexpr (sizeof(T) == 4) {
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
    } else if constexpr (sizeof(T) == 2) {
      asm volatile("{.reg .u16 h; ld.shared.u16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(value) : "r"(address));
    } else {
      asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address));
    }
    return static_cast<T>(value);
  }
}

__device__ inline void copy_async16(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ inline void copy_async8(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address), "l"(global) : "memory");
}
__device__ inline void copy_async4(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(global) : "memory");
}
__device__ inline void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- order of launches ----

__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline bool skipped(const uint32_t* flag) {
  wait_for_previous();
  return flag != nullptr && load_acquire(flag) != 0;
}

// ---- arithmetic ----

__device__ inline float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ inline float sqrt(float x) {
  return __fsqrt_rn(x);
}
__device__ inline float reciprocal_sqrt(float x) {
  return __fdiv_rn(1.0f, __fsqrt_rn(x));
}
__device__ inline float exp(float x) {
  return ::expf(x);
}
__device__ inline float log1p(float x) {
  return ::log1pf(x);
}
__device__ inline float cos(float x) {
  return ::cosf(x);
}
__device__ inline float sin(float x) {
  return ::sinf(x);
}
__device__ inline int round_to_int(float x) {
  return __float2int_rn(x);
}
__device__ inline int dot4(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}
__device__ inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
__device__ inline uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
}
__device__ inline uint32_t subtract_bytes(uint32_t a, uint32_t b) {
  return __vsub4(a, b);
}
__device__ inline int count_bits(uint32_t x) {
  return __popc(x);
}
__device__ inline int lowest_bit(uint32_t x) {
  return x == 0 ? 32 : __ffs(static_cast<int>(x)) - 1;
}
__device__ inline float float_of_bits(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ inline uint32_t bits_of_float(float x) {
  return __float_as_uint(x);
}
__device__ inline float half_to_float(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline uint16_t float_to_half(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
__device__ inline float bfloat_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ inline uint16_t float_to_bfloat(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// ---- matrix products of a warp ----

__device__ inline void multiply_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void multiply_s8(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int32_t c) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(c));
}
__device__ inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void load_matrices(uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

}  // namespace redlite::gpu::simt

namespace redlite::gpu {

template <typename K>
__global__ void run_on_cuda(const __grid_constant__ typename K::Params params) {
  __shared__ typename K::Shared shared;
  K::run(params, shared);
}

/// For kernels whose blocks of K::kThreads are to share a multiprocessor K::kBlocksOfMultiprocessor at a
/// time.
template <typename K>
__global__ void __launch_bounds__(K::kThreads, K::kBlocksOfMultiprocessor)
    run_bounded_on_cuda(const __grid_constant__ typename K::Params params) {
  __shared__ typename K::Shared shared;
  K::run(params, shared);
}

template <typename K>
const void* cuda_kernel() {
  if constexpr (requires { K::kBlocksOfMultiprocessor; }) {
    return reinterpret_cast<const void*>(&run_bounded_on_cuda<K>);
  } else {
    return reinterpret_cast<const void*>(&run_on_cuda<K>);
  }
}

}  // namespace redlite::gpu

#define RL_KERNEL(...) template const void*(::redlite::gpu::cuda_kernel<__VA_ARGS__>)()
