#include "gpu/kernels/repack.h"

#include "gpu/simt.h"

namespace redlite::gpu {

namespace {
constexpr int kThreads = 256;
}  // namespace

struct Repack::Shared {
  alignas(16) uint8_t tile[kTileBytes];
};

RL_RUN void Repack::run(const Params& p, Shared& shared) {
  if (simt::skipped(p.skip)) return;
  const auto block_bytes = static_cast<uint32_t>(p.format.block_bytes);
  const auto tile_blocks = static_cast<uint32_t>(Repack::tile_blocks(p.format));
  const auto thread = static_cast<uint32_t>(simt::thread_index());
  for (uint32_t first = simt::block_index().x * tile_blocks; first < p.blocks;
       first += simt::grid_size().x * tile_blocks) {
    const uint32_t blocks = p.blocks - first < tile_blocks ? p.blocks - first : tile_blocks;
    const uint32_t bytes = blocks * block_bytes;
    const std::byte* from = p.from + static_cast<uint64_t>(first) * block_bytes;
    uint32_t done = 0;
    if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      done = bytes / 16 * 16;
      for (uint32_t i = 16 * thread; i < done; i += 16 * kThreads) {
        *reinterpret_cast<simt::U32x4*>(shared.tile + i) =
            simt::load_once(reinterpret_cast<const simt::U32x4*>(from + i));
      }
    }
    for (uint32_t i = done + thread; i < bytes; i += kThreads) {
      shared.tile[i] = simt::load_cached(reinterpret_cast<const uint8_t*>(from + i));
    }
    simt::sync_block();

    for (int n = 0; n < p.format.n_planes; ++n) {
      const Plane plane = p.format.planes[n];
      std::byte* to = p.to + p.plane[n] + static_cast<uint64_t>(first) * plane.bytes;
      const uint32_t size = blocks * plane.bytes;
      for (uint32_t at = 16 * thread; at < size; at += 16 * kThreads) {
        uint32_t block = at / plane.bytes;
        auto i = static_cast<int>(at % plane.bytes);
        simt::U32x4 out;
        for (int word = 0; word < 4; ++word) {
          uint32_t packed = 0;
          for (int b = 0; b < 4; ++b) {
            if (block < blocks) {
              packed |= static_cast<uint32_t>(plane_byte(plane, i, shared.tile + block * block_bytes))
                        << (8 * b);
            }
            if (++i == plane.bytes) {
              i = 0;
              ++block;
            }
          }
          out.v[word] = packed;
        }
        *reinterpret_cast<simt::U32x4*>(to + at) = out;
      }
    }
    simt::sync_block();
  }
}

RL_KERNEL(Repack);

}  // namespace redlite::gpu
