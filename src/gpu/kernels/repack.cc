#include "gpu/kernels/repack.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/repack_tile.h"

namespace redlite::gpu {

struct Repack::Shared {
  alignas(16) uint8_t tile[kTileBytes];
};

RL_RUN void Repack::run(const Params& p, Shared& shared) {
  if (simt::skipped(p.skip)) return;
  const auto tile_blocks = static_cast<uint32_t>(Repack::tile_blocks(p.format));
  for (uint32_t first = simt::block_index().x * tile_blocks; first < p.blocks;
       first += simt::grid_size().x * tile_blocks) {
    const uint32_t blocks = p.blocks - first < tile_blocks ? p.blocks - first : tile_blocks;
    const std::byte* from = p.from + static_cast<uint64_t>(first) * p.format.block_bytes;
    repack_tile<kBlockThreads>(p.format, from, p.to, p.plane, first, blocks, shared.tile);
  }
}

RL_KERNEL(Repack);

}  // namespace redlite::gpu
