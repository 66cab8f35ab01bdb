#include "gpu/kernels/route.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/host_slots.h"
#include "gpu/kernels/select.h"
#include "model/router.h"

namespace redlite::gpu {

struct Route::Shared {
  float sums[kBlockWarps];
  uint64_t candidates[kMaxExperts];
  Selection selection;
};

namespace {

constexpr int kLanes = model::kRouterLanes;
static_assert(Route::kPadding == kLanes);
/// Finds the slots of the selected experts; the misses get the least recently used ones. By one warp.
RL_DEVICE void assign_slots(const SlotTable& table, const int32_t* ids, int n_used, int32_t* slots) {
  const int lane = simt::lane_index();
  const uint32_t tick = *table.tick + 1;
  int32_t slot = lane < n_used ? table.slot_of[ids[lane]] : 0;
  if (lane < n_used && slot >= 0) table.last_used[slot] = tick;
  uint32_t* uses = slot >= 0 ? table.hits : table.misses;
  if (lane < n_used && uses != nullptr) simt::atomic_add(&uses[ids[lane]], 1u);
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
  if (lane < n_used && slots != nullptr) slots[lane] = slot;
  if (lane == 0) {
    *table.tick = tick;
    *table.n_copies = n_copies;
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
  for (int row = 0; row < n_rows; ++row) {
    for (int i = 4 * thread; i < p.n; i += 4 * kBlockThreads) {
      simt::copy_async16(rows + row * row_stride + i,
                         p.router + static_cast<size_t>(first_row + row) * p.n + i);
    }
  }
  simt::copy_commit();
  BlockVector weight{};
  if (BlockVector::holds(p.n)) weight.load(p.weight, p.n);
  if (simt::skipped(p.skip)) return;

  const float* x = p.x + static_cast<size_t>(token) * p.n;
  float* h = rows + kRows * row_stride;  // [n]
  if (BlockVector::holds(p.n)) {
    BlockVector values;
    values.load(x, p.n);
    values.rms_normalize(weight, p.n, p.eps, shared.sums);
    values.store(h, p.n);
  } else {
    const float norm = rms_scale(x, p.n, p.eps, shared.sums);
    for (int i = thread; i < p.n; i += kBlockThreads) h[i] = x[i] * norm * p.weight[i];
  }
  simt::copy_wait<0>();
  simt::sync_block();

  // Row r by threads kLanes * r and the following, each one of the router's lanes.
  float* logits = p.logits + static_cast<size_t>(token) * p.n_rows;
  const int row = thread / kLanes, router_lane = thread % kLanes;
  if (warp < kRows * kLanes / simt::kWarpSize) {
    float sum = 0;
    if (row < n_rows) {
      const float* w = rows + row * row_stride;
      RL_UNROLL_BY(16)
      for (int i = router_lane; i < p.n; i += kLanes) sum = simt::fma(h[i], w[i], sum);
    }
    sum = simt::warp_sum<kLanes>(sum);
    if (router_lane == 0 && row < n_rows) logits[first_row + row] = sum;
  } else if (warp == kBlockWarps - 1 && p.rounded != nullptr) {
    // Meanwhile what the experts get, strip by strip.
    constexpr int kStrip = QuantizedActivations::kStrip;
    QuantizedActivations rounded(p.rounded + token * QuantizedActivations::bytes(p.n), p.n);
    const int blocks = static_cast<int>(simt::grid_size().x);
    for (int strip = block; strip * kStrip < p.n; strip += blocks) {
      const int i = strip * kStrip + lane;
      const bool there = lane < kStrip && i < p.n;
      const float value = there ? h[i] : 0;
      if (there) p.input[static_cast<size_t>(token) * p.n + i] = value;
      rounded.put(i, value, lane < kStrip);
    }
  }
  simt::sync_block();
  if (warp != 0) return;
  uint32_t before = 0;
  if (lane == 0) {
    simt::fence_device();
    before = simt::atomic_add(&p.tickets[token], 1u);
  }
  if (simt::shuffle(before, 0) != simt::grid_size().x - 1) return;
  simt::fence_device();

  // All logits are there.
  if (lane == 0) p.tickets[token] = 0;
  const float shared_logit =
      lane == p.n_used && p.n_rows > p.n_experts ? load_fresh(&logits[p.n_experts]) : 0;
  select(logits, p.n_experts, p.n_used, shared.candidates, shared.selection);
  const float share = share_of(shared.selection, p.n_used, p.scale);
  const int n_shares = p.n_used + p.n_rows - p.n_experts;
  float* shares = p.shares + static_cast<size_t>(token) * n_shares;
  const int32_t* ids = shared.selection.ids;
  if (lane < p.n_used) {
    p.ids[static_cast<size_t>(token) * p.n_used + lane] = ids[lane];
    shares[lane] = share;
  } else if (lane == p.n_used && n_shares > p.n_used) {
    shares[lane] = sigmoid(shared_logit);
  }
  int32_t* slots = p.slots == nullptr ? nullptr : p.slots + static_cast<size_t>(token) * p.n_used;
  if (p.table.slot_of != nullptr) {
    assign_slots(p.table, ids, p.n_used, slots);
  } else if (p.table.hits != nullptr && lane < p.n_used) {
    simt::atomic_add(&p.table.hits[ids[lane]], 1u);
  }
  if (p.host.record != nullptr) tell_host(p.host, ids, p.n_used, p.step->number, slots);
}

RL_KERNEL(Route);

}  // namespace redlite::gpu
