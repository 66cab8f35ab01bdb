#include "gpu/kernels/load_experts.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/repack_tile.h"

namespace redlite::gpu {

struct LoadExperts::Shared {
  alignas(16) uint8_t tile[kTileBytes];
};

RL_RUN void LoadExperts::run(const Params& p, Shared& shared) {
  simt::let_next_start();
  simt::wait_for_previous();
  const uint32_t block = simt::block_index().x, grid = simt::grid_size().x;
  if (p.stop != nullptr && block == 0) {
    const int thread = simt::thread_index();
    if (thread < p.n_used) p.slots_of_token[thread] = p.resume[thread];
    if (thread == 0) *p.stop = 0;
  }
  const bool listed = p.copies != nullptr;
  const uint32_t n = listed ? *p.n_copies : static_cast<uint32_t>(p.n_loads);
  uint32_t tiles[3];  // of each matrix
  for (int m = 0; m < 3; ++m) {
    const uint32_t size = tile_blocks(p.matrices[m].format);
    tiles[m] = (p.matrices[m].blocks + size - 1) / size;
  }
  const uint32_t tiles_of_expert = tiles[0] + tiles[1] + tiles[2];
  for (uint32_t i = block; i < n * tiles_of_expert; i += grid) {
    const uint32_t number = i / tiles_of_expert;
    uint32_t tile = i % tiles_of_expert;
    int m = 0;
    while (tile >= tiles[m]) tile -= tiles[m++];
    const LoadFormat& matrix = p.matrices[m];
    const uint32_t size = tile_blocks(matrix.format), first = tile * size;
    const uint32_t blocks = matrix.blocks - first < size ? matrix.blocks - first : size;
    const std::byte* from;
    int32_t slot;
    if (listed) {
      const SlotCopy copy = p.copies[number];
      from = p.source.first[m] + p.source.stride[m] * static_cast<uint64_t>(copy.expert);
      slot = copy.slot;
    } else {
      from = p.loads[number].from[m];
      slot = p.loads[number].slot;
    }
    repack_tile<kBlockThreads>(matrix.format, from + static_cast<uint64_t>(first) * matrix.format.block_bytes,
                               p.slots + p.slot_bytes * static_cast<uint64_t>(slot), matrix.plane, first,
                               blocks, shared.tile);
  }
}

RL_KERNEL(LoadExperts);

}  // namespace redlite::gpu
