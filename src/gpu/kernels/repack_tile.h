#pragma once

#include "gpu/planes.h"
#include "gpu/simt.h"

/// What the kernels that bring weights into planes have in common; for kernels only.
namespace redlite::gpu {

/// GGUF blocks [first, first + blocks) of a matrix to planes, by a block of kThreads threads. `from` is where
/// block `first` lies, in device memory or in host memory that kernels can read: 16-byte loads where it is
/// aligned for them, several under way at a time. `to` is the matrix's planes, `plane` where each starts;
/// `first` is a multiple of 16. `tile` is shared memory for the blocks.
template <int kThreads>
RL_DEVICE inline void repack_tile(const PlaneFormat& format, const std::byte* from, std::byte* to,
                                  const uint64_t* plane_at, uint32_t first, uint32_t blocks, uint8_t* tile) {
  constexpr int kAtOnce = 4;
  const auto block_bytes = static_cast<uint32_t>(format.block_bytes);
  const auto thread = static_cast<uint32_t>(simt::thread_index());
  const uint32_t bytes = blocks * block_bytes;
  uint32_t done = 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    done = bytes / 16 * 16;
    for (uint32_t i = 16 * thread; i < done; i += 16 * kThreads * kAtOnce) {
      simt::U32x4 words[kAtOnce];
      RL_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        const uint32_t at = i + 16 * kThreads * j;
        if (at < done) words[j] = simt::load_once(reinterpret_cast<const simt::U32x4*>(from + at));
      }
      RL_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        const uint32_t at = i + 16 * kThreads * j;
        if (at < done) *reinterpret_cast<simt::U32x4*>(tile + at) = words[j];
      }
    }
  }
  for (uint32_t i = done + thread; i < bytes; i += kThreads) {
    tile[i] = simt::load_cached(reinterpret_cast<const uint8_t*>(from + i));
  }
  simt::sync_block();

  for (int n = 0; n < format.n_planes; ++n) {
    const Plane plane = format.planes[n];
    std::byte* out = to + plane_at[n] + static_cast<uint64_t>(first) * plane.bytes;
    const uint32_t size = blocks * plane.bytes;
    for (uint32_t at = 16 * thread; at < size; at += 16 * kThreads) {
      uint32_t block = at / plane.bytes;
      auto i = static_cast<int>(at % plane.bytes);
      simt::U32x4 words;
      for (int word = 0; word < 4; ++word) {
        uint32_t packed = 0;
        for (int b = 0; b < 4; ++b) {
          if (block < blocks)
            packed |= static_cast<uint32_t>(plane_byte(plane, i, tile + block * block_bytes)) << (8 * b);
          if (++i == plane.bytes) {
            i = 0;
            ++block;
          }
        }
        words.v[word] = packed;
      }
      *reinterpret_cast<simt::U32x4*>(out + at) = words;
    }
  }
  simt::sync_block();
}

}  // namespace redlite::gpu
