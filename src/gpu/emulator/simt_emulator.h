#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "gpu/emulator/machine.h"

/// What kernels are written in, on the emulator: ordinary code, and collectives of the emulated machine.
/// Where CUDA's result is defined to the bit, so is this, and it is the same.
namespace redlite::gpu::simt {

inline constexpr int kWarpSize = 32;

// ---- where am I ----

inline int thread_index() {
  return static_cast<int>(emulator::current_lane->thread);
}
inline int lane_index() {
  return static_cast<int>(emulator::current_lane->thread % 32);
}
inline int warp_index() {
  return static_cast<int>(emulator::current_lane->thread / 32);
}
inline int block_threads() {
  return static_cast<int>(emulator::current_block->threads);
}
inline Dim3 block_index() {
  return emulator::current_block->index;
}
inline Dim3 grid_size() {
  return emulator::current_block->grid;
}

/// The launch's Shape::dynamic_shared bytes, 16-byte aligned, uninitialised.
template <typename T>
inline T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::current_block->dynamic_shared);
}

// ---- barriers ----

// Where a collective is called: the default arguments below are the caller's place.
#define RL_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/// All threads of the block, and what they wrote to shared and global memory.
inline void sync_block(RL_PLACE) {
  emulator::block_barrier({"sync_block", file, line});
}
/// All threads of the warp, and what they wrote.
inline void sync_warp(RL_PLACE) {
  emulator::warp_collective(
      {"sync_warp", file, line}, [](void* const*) {}, nullptr);
}

// ---- warp operations ----

/// Every thread's value to a function of all 32: results[i] from values[].
template <typename T, typename Function>
inline T warp_exchange(const char* what, const char* file, int line, T value, Function /*function*/) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_empty_v<Function>);
  emulator::warp_collective(
      {what, file, line},
      [](void* const* operands) {
        T values[32];
        for (int i = 0; i < 32; ++i) values[i] = *static_cast<const T*>(operands[i]);
        for (int i = 0; i < 32; ++i) *static_cast<T*>(operands[i]) = Function{}(values, i);
      },
      &value);
  return value;
}

/// The value of thread `source` (0 to 31) of the warp.
template <typename T>
inline T shuffle(T value, int source, RL_PLACE) {
  struct Pair {
    T value;
    int source;
  };
  return warp_exchange("shuffle", file, line, Pair{value, source},
                       [](const Pair* all, int i) {
                         return Pair{all[all[i].source & 31].value, 0};
                       })
      .value;
}
/// The value of thread lane ^ mask.
template <typename T>
inline T shuffle_xor(T value, int mask, RL_PLACE) {
  return shuffle(value, lane_index() ^ mask, file, line);
}
/// The value of thread lane + delta; of itself where that is past the warp's end.
template <typename T>
inline T shuffle_down(T value, int delta, RL_PLACE) {
  return shuffle(value, lane_index() + delta > 31 ? lane_index() : lane_index() + delta, file, line);
}
/// The value of thread lane - delta; of itself where that is negative.
template <typename T>
inline T shuffle_up(T value, int delta, RL_PLACE) {
  return shuffle(value, lane_index() < delta ? lane_index() : lane_index() - delta, file, line);
}

/// Bit i: thread i's condition.
inline uint32_t ballot(bool condition, RL_PLACE) {
  return warp_exchange("ballot", file, line, static_cast<uint32_t>(condition), [](const uint32_t* all, int) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= all[i] << i;
    return bits;
  });
}
inline bool any(bool condition, RL_PLACE) {
  return ballot(condition, file, line) != 0;
}
inline bool all(bool condition, RL_PLACE) {
  return ballot(condition, file, line) == 0xffffffffu;
}

/// Folds the values of each group of `Width` neighbouring threads (a power of two) in halves: j += j ^
/// Width/2,
/// ..., j += j ^ 1; every thread of a group gets the same bits.
template <int Width, typename T, typename Function>
inline T group_fold(const char* what, const char* file, int line, T value, Function /*function*/) {
  static_assert(std::has_single_bit(static_cast<unsigned>(Width)) && Width <= 32);
  emulator::warp_collective(
      {what, file, line},
      [](void* const* operands) {
        T values[32];
        for (int i = 0; i < 32; ++i) values[i] = *static_cast<const T*>(operands[i]);
        for (int first = 0; first < 32; first += Width) {
          for (int half = Width / 2; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) {
              values[first + i] = Function{}(values[first + i], values[first + i + half]);
            }
          }
          for (int i = 0; i < Width; ++i) *static_cast<T*>(operands[first + i]) = values[first];
        }
      },
      &value);
  return value;
}
template <int Width = 32, typename T>
inline T warp_sum(T value, RL_PLACE) {
  return group_fold<Width>("warp_sum", file, line, value, [](T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // which wraps round, as on a GPU
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return static_cast<T>(a + b);
    }
  });
}
/// The same for a width that the compiler does not know: a power of two, the same for all threads.
template <typename T>
inline T warp_sum(T value, int width, RL_PLACE) {
  switch (width) {
    case 1:
      return value;
    case 2:
      return warp_sum<2>(value, file, line);
    case 4:
      return warp_sum<4>(value, file, line);
    case 8:
      return warp_sum<8>(value, file, line);
    case 16:
      return warp_sum<16>(value, file, line);
    default:
      return warp_sum<32>(value, file, line);
  }
}
/// NaN-free values only.
template <int Width = 32, typename T>
inline T warp_max(T value, RL_PLACE) {
  return group_fold<Width>("warp_max", file, line, value, [](T a, T b) { return a < b ? b : a; });
}
template <int Width = 32, typename T>
inline T warp_min(T value, RL_PLACE) {
  return group_fold<Width>("warp_min", file, line, value, [](T a, T b) { return b < a ? b : a; });
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

/// A load of what is read once by the whole grid (weights): not kept in L1. `address` is aligned to T, whose
/// size is 4, 8 or 16, and nobody writes there while the kernel runs.
template <typename T>
inline T load_once(const T* address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  return *address;
}
/// A load through the read-only cache: tables and small inputs read by many threads.
template <typename T>
inline T load_cached(const T* address) {
  return *address;
}

/// Asks for [address, address + bytes) to be brought into L2; both multiples of 16. Free to do nothing.
inline void prefetch_l2(const void* /*address*/, uint32_t /*bytes*/) {}

/// Atomics on global or shared memory (T: int32_t, uint32_t, uint64_t): relaxed; they return the old value.
template <typename T>
inline T atomic_add(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
inline T atomic_or(T* address, T value) {
  return std::atomic_ref(*address).fetch_or(value, std::memory_order_relaxed);
}
template <typename T>
inline T atomic_max(T* address, T value) {
  std::atomic_ref<T> atomic(*address);
  T old = atomic.load(std::memory_order_relaxed);
  while (old < value && !atomic.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <typename T>
inline T atomic_min(T* address, T value) {
  std::atomic_ref<T> atomic(*address);
  T old = atomic.load(std::memory_order_relaxed);
  while (value < old && !atomic.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <typename T>
inline T atomic_exchange(T* address, T value) {
  return std::atomic_ref(*address).exchange(value, std::memory_order_relaxed);
}
template <typename T>
inline T atomic_compare_exchange(T* address, T expected, T value) {
  std::atomic_ref(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}

/// Flags between blocks (device) or with the host (system): what was written before a store_release is seen
/// after the load_acquire that reads it.
inline uint32_t load_acquire(const uint32_t* address) {
  return std::atomic_ref(*const_cast<uint32_t*>(address)).load(std::memory_order_acquire);
}
/// What other blocks have written, in no order with other accesses: several are under way at once.
inline uint32_t load_relaxed(const uint32_t* address) {
  return std::atomic_ref(*const_cast<uint32_t*>(address)).load(std::memory_order_relaxed);
}
inline void store_release(uint32_t* address, uint32_t value) {
  std::atomic_ref(*address).store(value, std::memory_order_release);
}
inline uint32_t load_acquire_system(const uint32_t* address) {
  return load_acquire(address);
}
inline uint64_t load_acquire_system(const uint64_t* address) {
  return std::atomic_ref(*const_cast<uint64_t*>(address)).load(std::memory_order_acquire);
}
inline void store_release_system(uint32_t* address, uint32_t value) {
  store_release(address, value);
}
/// Orders this thread's writes before its later ones, for the device or also for the host.
inline void fence_device() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void fence_system() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// An address in shared memory as loads take it: sums are computed in it, not in the 64 bits of a pointer.
using SharedAddress = uintptr_t;
inline SharedAddress shared_address(const void* shared) {
  return reinterpret_cast<uintptr_t>(shared);
}
template <typename T = uint32_t>
inline T load_shared(SharedAddress address) {
  return *reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// Copies 16 bytes from global to shared memory in the background (both aligned). A group is what a thread
/// copied since its last copy_commit(); copy_wait<N>() waits for all but its N youngest groups, and other
/// threads see the bytes after a barrier behind that. The emulator copies at once.
inline void copy_async16(void* shared, const void* global) {
  std::memcpy(shared, global, 16);
}
/// The same for 8 bytes and for 4.
inline void copy_async8(void* shared, const void* global) {
  std::memcpy(shared, global, 8);
}
inline void copy_async4(void* shared, const void* global) {
  std::memcpy(shared, global, 4);
}
inline void copy_commit() {}
template <int N>
inline void copy_wait() {}

// ---- order of launches ----

/// Waits for the kernels in front of this one in the stream, which Shape::early_start did not wait for. In
/// every block of such a kernel, by whole warps, before the first access to anything they wrote. The emulator
/// does start a block early, in the replay of a graph, so that what is read too soon is wrong.
inline void wait_for_previous(RL_PLACE) {
  if (emulator::current_block->early) emulator::wait_for_previous({"wait_for_previous", file, line});
}
/// Lets the next kernel start if it may do so early, once all blocks have called it or ended.
inline void let_next_start() {}

/// The early-out: every decode kernel gets a flag (nullptr: never set) and returns at once when it is not
/// zero. Waits for the previous kernels, one of which may have set it; the answer is the same for all
/// threads.
inline bool skipped(const uint32_t* flag, RL_PLACE) {
  wait_for_previous(file, line);
  return flag != nullptr && load_acquire(flag) != 0;
}

// ---- arithmetic ----

inline float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float sqrt(float x) {
  return std::sqrt(x);
}
/// 1 / sqrt(x), correctly rounded in both steps.
inline float reciprocal_sqrt(float x) {
  return 1.0f / std::sqrt(x);
}
inline float exp(float x) {
  return std::exp(x);
}
inline float log1p(float x) {
  return std::log1p(x);
}
inline float cos(float x) {
  return std::cos(x);
}
inline float sin(float x) {
  return std::sin(x);
}
/// Rounds to the nearest integer, ties to even.
inline int round_to_int(float x) {
  return static_cast<int>(std::nearbyintf(x));
}

/// c plus the sum of the products of the four signed bytes.
inline int dot4(uint32_t a, uint32_t b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return c;
}
/// Byte i of the result is byte (selector >> 4 i) & 7 of the eight of a (0-3) and b (4-7).
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = a | static_cast<uint64_t>(b) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>((both >> (8 * ((selector >> (4 * i)) & 7))) & 0xff) << (8 * i);
  }
  return result;
}
/// The same of a selector whose low four nibbles are below 8, in one instruction.
inline uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return permute_bytes(a, b, selector & 0xffffu);
}
/// Bytes of a minus bytes of b, each modulo 256.
inline uint32_t subtract_bytes(uint32_t a, uint32_t b) {
  return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}
inline int count_bits(uint32_t x) {
  return std::popcount(x);
}
/// The lowest set bit's number; 32 if there is none.
inline int lowest_bit(uint32_t x) {
  return std::countr_zero(x);
}
inline float float_of_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t bits_of_float(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float half_to_float(uint16_t bits) {
  return f16_to_f32(bits);
}
inline uint16_t float_to_half(float x) {
  return f32_to_f16(x);
}
inline float bfloat_to_float(uint16_t bits) {
  return bf16_to_f32(bits);
}
inline uint16_t float_to_bfloat(float x) {
  return f32_to_bf16(x);
}

// ---- matrix products of a warp ----

/// D[16][8] += A[16][k] B[k][8], spread over the warp as PTX defines for mma.m16n8k32 (int8, int32) and
/// mma.m16n8k16 (binary16 or bfloat16, binary32). With group = lane / 4, t = lane % 4:
///   d[0], d[1]: row group, columns 2 t, 2 t + 1;  d[2], d[3]: row group + 8.
///   a[0]: row group, k-words t; a[1]: row group + 8; a[2], a[3]: the same rows, k-words t + 4.
///   b[0], b[1]: column group, k-words t and t + 4.
/// A k-word is 4 bytes of consecutive k: 4 int8 or 2 halves. The order of the float sums is the hardware's
/// own; here it is that of k.
template <typename D, int PerWord, typename Number>
inline void warp_multiply(const char* what, const char* file, int line, D (&d)[4], const uint32_t (&a)[4],
                          const uint32_t (&b)[2], Number /*number*/) {
  struct Operand {
    D* d;
    const uint32_t* a;
    const uint32_t* b;
  } operand{d, a, b};
  emulator::warp_collective(
      {what, file, line},
      [](void* const* operands) {
        constexpr int kDepth = 8 * PerWord;
        const auto of = [&](int lane) { return static_cast<const Operand*>(operands[lane]); };
        D rows[16][kDepth], columns[8][kDepth];
        for (int word = 0; word < 8; ++word) {
          for (int i = 0; i < PerWord; ++i) {
            const int k = PerWord * word + i, shift = 32 / PerWord * i;
            for (int row = 0; row < 16; ++row)
              rows[row][k] = Number{}(of(4 * (row % 8) + word % 4)->a[row / 8 + 2 * (word / 4)] >> shift);
            for (int column = 0; column < 8; ++column)
              columns[column][k] = Number{}(of(4 * column + word % 4)->b[word / 4] >> shift);
          }
        }
        for (int lane = 0; lane < 32; ++lane) {
          for (int j = 0; j < 4; ++j) {
            const int row = lane / 4 + 8 * (j / 2), column = 2 * (lane % 4) + j % 2;
            D sum = of(lane)->d[j];
            for (int k = 0; k < kDepth; ++k) sum += rows[row][k] * columns[column][k];
            of(lane)->d[j] = sum;
          }
        }
      },
      &operand);
}
inline void multiply_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RL_PLACE) {
  warp_multiply<int32_t, 4>("multiply_s8", file, line, d, a, b,
                            [](uint32_t bits) { return int32_t{static_cast<int8_t>(bits)}; });
}
/// D[16][8] = c + A[16][16] B[16][8] of int8 (mma.m16n8k16), every element with the same c; a0: row group,
/// k-word t; a1: row group + 8; b: column group, k-word t.
inline void multiply_s8(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int32_t c, RL_PLACE) {
  for (int i = 0; i < 4; ++i) d[i] = c;
  multiply_s8(d, {a0, a1, 0, 0}, {b, 0}, file, line);
}
inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RL_PLACE) {
  warp_multiply<float, 2>("multiply_f16", file, line, d, a, b,
                          [](uint32_t bits) { return f16_to_f32(static_cast<uint16_t>(bits)); });
}
inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RL_PLACE) {
  warp_multiply<float, 2>("multiply_bf16", file, line, d, a, b,
                          [](uint32_t bits) { return bf16_to_f32(static_cast<uint16_t>(bits)); });
}

/// A warp's four 8x8 matrices of 16-bit values in shared memory: words[m] gets what get(rows, lane) makes of
/// the eight rows of matrix m.
template <typename Get>
inline void load_four_matrices(const char* what, const char* file, int line, uint32_t (&words)[4],
                               const void* row, Get /*get*/) {
  struct Operand {
    uint32_t* words;
    const void* row;
  } operand{words, row};
  emulator::warp_collective(
      {what, file, line},
      [](void* const* operands) {
        const auto of = [&](int lane) { return static_cast<const Operand*>(operands[lane]); };
        for (int m = 0; m < 4; ++m) {
          uint16_t rows[8][8];
          for (int i = 0; i < 8; ++i) std::memcpy(rows[i], of(8 * m + i)->row, sizeof rows[i]);
          for (int lane = 0; lane < 32; ++lane) of(lane)->words[m] = Get{}(rows, lane);
        }
      },
      &operand);
}
/// Thread i gives the address of a 16-byte row (row i % 8 of matrix i / 8) and gets word lane % 4 of row lane
/// / 4 of each matrix.
inline void load_matrices(uint32_t (&words)[4], const void* row, RL_PLACE) {
  load_four_matrices("load_matrices", file, line, words, row, [](const uint16_t(&rows)[8][8], int lane) {
    const uint16_t* pair = &rows[lane / 4][2 * (lane % 4)];
    return static_cast<uint32_t>(pair[0]) | static_cast<uint32_t>(pair[1]) << 16;
  });
}
/// The same of each matrix's transpose.
inline void load_matrices_transposed(uint32_t (&words)[4], const void* row, RL_PLACE) {
  load_four_matrices(
      "load_matrices_transposed", file, line, words, row, [](const uint16_t(&rows)[8][8], int lane) {
        const int first = 2 * (lane % 4), column = lane / 4;
        return static_cast<uint32_t>(rows[first][column]) | static_cast<uint32_t>(rows[first + 1][column])
                                                                << 16;
      });
}

#undef RL_PLACE

}  // namespace redlite::gpu::simt

namespace redlite::gpu {

template <typename K>
EmulatorKernel emulator_kernel() {
  static_assert(alignof(typename K::Shared) <= 256);
  return {[](const void* params, void* shared) {
            K::run(*static_cast<const typename K::Params*>(params),
                   *static_cast<typename K::Shared*>(shared));
          },
          sizeof(typename K::Shared)};
}

}  // namespace redlite::gpu

/// Makes kernel K known to the back end that is being compiled. RL_EMULATOR_KERNEL is for the tests' own
/// kernels, which nvcc does not see.
#define RL_KERNEL(...) template ::redlite::gpu::EmulatorKernel(::redlite::gpu::emulator_kernel<__VA_ARGS__>)()
#define RL_EMULATOR_KERNEL(...)                             \
  template <>                                               \
  [[maybe_unused]] const void* cuda_kernel<__VA_ARGS__>() { \
    return nullptr;                                         \
  }                                                         \
  RL_KERNEL(__VA_ARGS__)
