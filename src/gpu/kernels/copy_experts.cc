#include "gpu/kernels/copy_experts.h"

#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct CopyExperts::Shared {};

RL_RUN void CopyExperts::run(const Params& p, Shared&) {
  constexpr int kAtOnce = 8;  // loads under way in each thread
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;
  const int n_copies = static_cast<int>(*p.n_copies);
  const uint64_t words = p.slot_bytes / sizeof(simt::U32x4);
  const uint64_t n_threads = static_cast<uint64_t>(simt::grid_size().x) * kBlockThreads;
  const uint64_t thread = static_cast<uint64_t>(simt::block_index().x) * kBlockThreads +
                          static_cast<uint64_t>(simt::thread_index());
  for (int i = 0; i < n_copies; ++i) {
    const SlotCopy copy = p.copies[i];
    const auto* from =
        reinterpret_cast<const simt::U32x4*>(p.from + p.slot_bytes * static_cast<uint64_t>(copy.expert));
    auto* to = reinterpret_cast<simt::U32x4*>(p.slots + p.slot_bytes * static_cast<uint64_t>(copy.slot));
    for (uint64_t first = thread; first < words; first += kAtOnce * n_threads) {
      simt::U32x4 loaded[kAtOnce];
      RL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const uint64_t word = first + static_cast<uint64_t>(j) * n_threads;
        if (word < words) loaded[j] = simt::load_once(from + word);
      }
      RL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const uint64_t word = first + static_cast<uint64_t>(j) * n_threads;
        if (word < words) to[word] = loaded[j];
      }
    }
  }
}

RL_KERNEL(CopyExperts);

}  // namespace redlite::gpu
