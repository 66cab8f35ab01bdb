#include "gpu/kernels/best.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/select.h"

namespace redlite::gpu {

struct Best::Shared {
  uint64_t best[kBlockWarps];
};

RL_RUN void Best::run(const Params& p, Shared& shared) {
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int first = static_cast<int>(simt::block_index().x) * kLogitsOfBlock;
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  uint64_t best = 0;
  RL_UNROLL
  for (int i = 0; i < kLogitsOfBlock / kBlockThreads; ++i) {
    const int at = first + i * kBlockThreads + thread;
    const uint64_t key = at < p.n ? expert_key(expert_order(p.logits[at]), at) : 0;
    if (best < key) best = key;
  }
  best = simt::warp_max(best);
  if (lane == 0) shared.best[warp] = best;
  simt::sync_block();
  if (thread != 0) return;
  for (int w = 1; w < kBlockWarps; ++w)
    if (best < shared.best[w]) best = shared.best[w];
  simt::atomic_max(p.best, best);
  simt::fence_device();
  if (simt::atomic_add(p.ticket, 1u) != simt::grid_size().x - 1) return;
  simt::fence_device();
  *p.host = simt::atomic_exchange(p.best, uint64_t{0});
  *p.ticket = 0;
}

RL_KERNEL(Best);

}  // namespace redlite::gpu
