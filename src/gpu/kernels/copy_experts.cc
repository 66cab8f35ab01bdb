#include "gpu/kernels/copy_experts.h"

#include "gpu/kernels/block.h"
#include "gpu/simt.h"

namespace redlite::gpu {

struct CopyExperts::Shared {};

RL_RUN void CopyExperts::run(const Params& p, Shared&) {
  constexpr uint32_t kStride = 16 * kBlockThreads, kAtOnce = kPieceBytes / kStride;
  const uint32_t block = simt::block_index().x, grid = simt::grid_size().x;
  const auto thread = static_cast<uint32_t>(simt::thread_index());
  const auto bytes = static_cast<uint32_t>(p.slot_bytes), n = static_cast<uint32_t>(p.n_copies);
  const uint32_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;  // of an expert
  for (uint32_t i = block; i < n * pieces; i += grid) {
    const Copy copy = p.copies[i / pieces];
    const std::byte* from = p.from + p.slot_bytes * static_cast<uint64_t>(copy.from);
    std::byte* to = p.to + p.slot_bytes * static_cast<uint64_t>(copy.to);
    const uint32_t first = i % pieces * kPieceBytes + 16 * thread;
    simt::U32x4 words[kAtOnce];
    RL_UNROLL
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t at = first + kStride * j;
      if (at < bytes) words[j] = simt::load_once(reinterpret_cast<const simt::U32x4*>(from + at));
    }
    RL_UNROLL
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t at = first + kStride * j;
      if (at < bytes) *reinterpret_cast<simt::U32x4*>(to + at) = words[j];
    }
  }
  if (p.slot_of == nullptr || block != 0) return;
  for (uint32_t i = thread; i < n; i += kBlockThreads) {
    const Copy copy = p.copies[i];
    p.slot_of[p.first_expert + copy.from] = copy.to;
    p.expert_of[copy.to] = p.first_expert + copy.from;
  }
}

RL_KERNEL(CopyExperts);

}  // namespace redlite::gpu
