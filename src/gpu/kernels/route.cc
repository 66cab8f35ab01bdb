#include "gpu/kernels/route.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/host_slots.h"
#include "model/router.h"

namespace redlite::gpu {

struct Route::Shared {
  float sums[kBlockWarps];
  float logits[kMaxExperts];
  float exponentials[kMaxExperts];
  int32_t ids[kMaxUsed];
  float largest;
  float total;
  bool last;
};

namespace {

constexpr int kLanes = model::kRouterLanes;
static_assert(Route::kPadding == kLanes);

/// Orders logits as select_experts() does: a greater key is a better expert. NaN comes last, of equal logits
/// (0 and -0 are) the lower id wins.
RL_DEVICE uint64_t key(float logit, int expert) {
  const uint32_t bits = simt::bits_of_float(logit + 0.0f);
  uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (!(logit == logit)) order = 0;
  return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

/// What another block of this launch wrote.
RL_DEVICE float load_fresh(const float* address) {
  return simt::float_of_bits(simt::load_acquire(reinterpret_cast<const uint32_t*>(address)));
}

/// The best of the experts e % 32 == lane whose key is below `below`; 0: there is none.
RL_DEVICE uint64_t best_of_lane(const float* logits, int n_experts, uint64_t below) {
  uint64_t best = 0;
  for (int e = simt::lane_index(); e < n_experts; e += simt::kWarpSize) {
    const uint64_t k = key(logits[e], e);
    if (k < below && k > best) best = k;
  }
  return best;
}

/// Finds the slots of the selected experts; the misses get the least recently used ones. By one warp.
RL_DEVICE void assign_slots(const SlotTable& table, const int32_t* ids, int n_used, int32_t* slots) {
  const int lane = simt::lane_index();
  const uint32_t tick = *table.tick + 1;
  int32_t slot = lane < n_used ? table.slot_of[ids[lane]] : 0;
  if (lane < n_used && slot >= 0) table.last_used[slot] = tick;
  const uint32_t missing = simt::ballot(slot < 0);
  simt::sync_warp();
  uint32_t n_copies = 0;
  for (uint32_t left = missing; left != 0; left &= left - 1) {
    // Slots of this pass have the latest tick: as long as there are others, they are not taken.
    uint64_t oldest = ~uint64_t{0};
    for (int s = lane; s < table.n_slots; s += simt::kWarpSize) {
      const uint64_t age = static_cast<uint64_t>(table.last_used[s]) << 32 | static_cast<uint32_t>(s);
      if (age < oldest) oldest = age;
    }
    const int32_t victim = static_cast<int32_t>(static_cast<uint32_t>(simt::warp_min(oldest)));
    const int number = simt::lowest_bit(left);
    if (lane == number) {
      slot = victim;
      const int32_t expert = ids[lane], before = table.expert_of[victim];
      if (before >= 0) table.slot_of[before] = -1;
      table.slot_of[expert] = victim;
      table.expert_of[victim] = expert;
      table.last_used[victim] = tick;
      table.copies[n_copies] = {expert, victim};
    }
    ++n_copies;
    simt::sync_warp();
  }
  if (lane < n_used) slots[lane] = slot;
  if (lane == 0) {
    *table.tick = tick;
    *table.n_copies = n_copies;
    *table.hits += static_cast<uint64_t>(n_used) - n_copies;
    *table.misses += n_copies;
  }
}

}  // namespace

RL_RUN void Route::run(const Params& p, Shared& shared) {
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int block = static_cast<int>(simt::block_index().x), token = static_cast<int>(simt::block_index().y);
  simt::let_next_start();

  // The weights come in while the kernel before still runs.
  float* rows = simt::dynamic_shared<float>();  // [kRows][n + kPadding]
  const int row_stride = p.n + kPadding;
  const int first_row = block * kRows;
  const int n_rows = p.n_rows - first_row < kRows ? p.n_rows - first_row : kRows;
  for (int i = thread; i < n_rows * p.n / 4; i += kBlockThreads) {
    const int row = 4 * i / p.n, column = 4 * i % p.n;
    simt::copy_async16(rows + row * row_stride + column,
                       p.router + static_cast<size_t>(first_row) * p.n + 4 * i);
  }
  simt::copy_commit();
  if (simt::skipped(p.skip)) return;

  const float* x = p.x + static_cast<size_t>(token) * p.n;
  float* h = rows + kRows * row_stride;  // [n]
  const float norm = rms_scale(x, p.n, p.eps, shared.sums);
  for (int i = thread; i < p.n; i += kBlockThreads) {
    h[i] = x[i] * norm * p.weight[i];
    if (block == 0) p.input[static_cast<size_t>(token) * p.n + i] = h[i];
  }
  simt::copy_wait<0>();
  simt::sync_block();

  // Row r by threads kLanes * r and the following, each one of the router's lanes.
  float* logits = p.logits + static_cast<size_t>(token) * p.n_rows;
  const int row = thread / kLanes, router_lane = thread % kLanes;
  if (warp < (kRows * kLanes + simt::kWarpSize - 1) / simt::kWarpSize) {
    float sum = 0;
    if (row < n_rows) {
      for (int i = router_lane; i < p.n; i += kLanes) sum = simt::fma(h[i], rows[row * row_stride + i], sum);
    }
    sum = simt::warp_sum<kLanes>(sum);
    if (router_lane == 0 && row < n_rows) {
      logits[first_row + row] = sum;
      simt::fence_device();
    }
  }
  simt::sync_block();
  if (thread == 0) {
    simt::fence_device();
    shared.last = simt::atomic_add(&p.tickets[token], 1u) == simt::grid_size().x - 1;
    simt::fence_device();
  }
  simt::sync_block();
  if (!shared.last) return;

  // All logits are there.
  if (thread == 0) p.tickets[token] = 0;
  for (int i = thread; i < p.n_experts; i += kBlockThreads) shared.logits[i] = load_fresh(&logits[i]);
  simt::sync_block();
  uint64_t best = 0;
  if (warp == 0) {
    best = simt::warp_max(best_of_lane(shared.logits, p.n_experts, ~uint64_t{0}));
    if (lane == 0) {
      shared.ids[0] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
      shared.largest = shared.logits[shared.ids[0]];
    }
  }
  simt::sync_block();
  if (warp == 0) {
    uint64_t mine = best_of_lane(shared.logits, p.n_experts, best);
    for (int i = 1; i < p.n_used; ++i) {
      best = simt::warp_max(mine);
      if (mine == best) mine = best_of_lane(shared.logits, p.n_experts, best);
      if (lane == 0) shared.ids[i] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
    }
  } else if (warp == 1) {
    for (int i = lane; i < p.n_experts; i += simt::kWarpSize)
      shared.exponentials[i] = model::router_exp(shared.logits[i] - shared.largest);
    simt::sync_warp();
    if (lane == 0) {
      float total = 0;
      for (int i = 0; i < p.n_experts; ++i) total += shared.exponentials[i];
      shared.total = total;
    }
  }
  simt::sync_block();
  int32_t* ids = p.ids + static_cast<size_t>(token) * p.n_used;
  const int n_shares = p.n_used + p.n_rows - p.n_experts;
  float* shares = p.shares + static_cast<size_t>(token) * n_shares;
  if (thread == 0) {
    float sum = 0;
    for (int i = 0; i < p.n_used; ++i) sum += shared.exponentials[shared.ids[i]] / shared.total;
    if (sum < 0x1p-14f) sum = 0x1p-14f;
    for (int i = 0; i < p.n_used; ++i) {
      ids[i] = shared.ids[i];
      shares[i] = shared.exponentials[shared.ids[i]] / shared.total / sum * p.scale;
    }
  } else if (thread == simt::kWarpSize && n_shares > p.n_used) {
    shares[p.n_used] = sigmoid(load_fresh(&logits[p.n_experts]));
  }
  if (warp == 2) {
    int32_t* slots = p.slots + static_cast<size_t>(token) * p.n_used;
    if (p.table.slot_of != nullptr) assign_slots(p.table, shared.ids, p.n_used, slots);
    if (p.host.record != nullptr) tell_host(p.host, shared.ids, p.n_used, p.step->number, slots);
  }
}

RL_KERNEL(Route);

}  // namespace redlite::gpu
