#include "gpu/kernels/route.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/host_slots.h"
#include "gpu/kernels/select.h"
#include "model/router.h"

namespace redlite::gpu {

struct Route::Shared {
  float sums[kBlockWarps];
  uint32_t before;  ///< blocks of the token that were done earlier
  Selection selection;
};

namespace {

constexpr int kLanes = model::kRouterLanes;
static_assert(Route::kGroup == 4 * kLanes);

/// Where value i of a row, or of the input, lies in shared memory: in a group, the four values of each of the
/// router's lanes, which then loads them at once.
RL_DEVICE inline uint32_t place_of(int at) {
  const auto i = static_cast<uint32_t>(at);
  return i / Route::kGroup * Route::kGroup + i % kLanes * 4 + i / kLanes % 4;
}

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
  const int token = static_cast<int>(simt::block_index().y);
  simt::let_next_start();
  // The blocks of the selection, then those of each prediction.
  const auto own_blocks = static_cast<int>(blocks(p.n_rows)),
             next_blocks = static_cast<int>(blocks(p.n_experts));
  const int behind = static_cast<int>(simt::block_index().x) - own_blocks;
  const bool predicts = behind >= 0;
  const int block = predicts ? behind % next_blocks : behind + own_blocks;
  const Params::Next& next = p.next[predicts ? behind / next_blocks : 0];
  const float* const router = predicts ? next.router : p.router;
  const int all_rows = predicts ? p.n_experts : p.n_rows;

  // The weights come in while the kernel before still runs.
  float* rows = simt::dynamic_shared<float>();  // [kRows][row_stride]
  const int row_stride = padded(p.n);
  const int first_row = block * kRows;
  const int n_rows = all_rows - first_row < kRows ? all_rows - first_row : kRows;
  for (int row = 0; row < n_rows; ++row) {
    const float* from = router + static_cast<size_t>(first_row + row) * p.n;
    float* to = rows + row * row_stride;
    for (int i = thread; i < p.n; i += kBlockThreads) simt::copy_async4(to + place_of(i), from + i);
  }
  simt::copy_commit();
  BlockVector weight{};
  if (BlockVector::holds(p.n)) weight.load(p.weight, p.n);
  if (predicts) {
    // The selection of this very launch may raise the flag meanwhile; nobody relies on a prediction.
    simt::wait_for_previous();
  } else if (simt::skipped(p.skip)) {
    return;
  }

  const float* x = p.x + static_cast<size_t>(token) * p.n;
  float* h = rows + kRows * row_stride;  // [row_stride]
  if (BlockVector::holds(p.n)) {
    BlockVector values;
    values.load(x, p.n);
    values.multiply(values.rms_scale(p.n, p.eps, shared.sums), weight);
    values.for_each(p.n, [&](int i, float value) { h[place_of(i)] = value; });
  } else {
    const float norm = rms_scale(x, p.n, p.eps, shared.sums);
    for (int i = thread; i < p.n; i += kBlockThreads) h[place_of(i)] = x[i] * norm * p.weight[i];
  }
  simt::copy_wait<0>();
  simt::sync_block();

  // Rows r and r + 2 by threads kLanes * r and the following of the first warp, each one of the router's
  // lanes.
  static_assert(kRows * kLanes == 2 * simt::kWarpSize);
  float* logits = predicts ? next.logits : p.logits + static_cast<size_t>(token) * p.n_rows;
  if (warp == 0) {
    const int row = lane / kLanes, router_lane = lane % kLanes, whole = p.n / kGroup * kGroup;
    const float* x_of_lane = h + 4 * router_lane;
    const float* w = rows + row * row_stride + 4 * router_lane;  // rows behind the last one count for nothing
    float sum[2] = {0, 0};
    RL_UNROLL_BY(4)
    for (int i = 0; i < whole; i += kGroup) {
      const auto x4 = *reinterpret_cast<const simt::F32x4*>(x_of_lane + i);
      RL_UNROLL
      for (int r = 0; r < 2; ++r) {
        const auto w4 = *reinterpret_cast<const simt::F32x4*>(w + 2 * r * row_stride + i);
        RL_UNROLL
        for (int j = 0; j < 4; ++j) sum[r] = simt::fma(x4.v[j], w4.v[j], sum[r]);
      }
    }
    for (int i = whole + router_lane; i < p.n; i += kLanes)
      for (int r = 0; r < 2; ++r)
        sum[r] = simt::fma(h[place_of(i)], rows[(row + 2 * r) * row_stride + place_of(i)], sum[r]);
    RL_UNROLL
    for (int r = 0; r < 2; ++r) {
      sum[r] = simt::warp_sum<kLanes>(sum[r]);
      if (router_lane == 0 && row + 2 * r < n_rows) logits[first_row + row + 2 * r] = sum[r];
    }
  } else if (warp == kBlockWarps - 1 && !predicts) {
    // Meanwhile what the experts get, strip by strip.
    constexpr int kStrip = QuantizedActivations::kStrip;
    QuantizedActivations rounded(p.rounded + token * QuantizedActivations::bytes(p.n), p.n);
    for (int strip = block; strip * kStrip < p.n; strip += own_blocks) {
      const int i = strip * kStrip + lane;
      const bool there = lane < kStrip && i < p.n;
      const float value = there ? h[place_of(i)] : 0;
      if (there) p.input[static_cast<size_t>(token) * p.n + i] = value;
      rounded.put(i, value, lane < kStrip);
    }
  }
  if (warp == 0) {
    simt::sync_warp();
    if (lane == 0) {
      simt::fence_device();
      shared.before = simt::atomic_add(predicts ? next.ticket : &p.tickets[token], 1u);
      simt::fence_device();
    }
  }
  simt::sync_block();
  if (shared.before != blocks(all_rows) - 1) return;

  // All logits are there.
  if (predicts) {
    select(logits, p.n_experts, p.n_used, shared.selection);
    if (warp != 0) return;
    if (lane == 0) *next.ticket = 0;
    const int32_t* ids = shared.selection.ids;
    if (next.table.slot_of != nullptr) assign_slots(next.table, ids, p.n_used, nullptr);
    if (next.host.record != nullptr) tell_host(next.host, ids, p.n_used, p.step->number, nullptr);
    return;
  }
  const int n_scores = p.n_used + p.n_rows - p.n_experts;
  const bool is_last = warp == kBlockWarps - 1 && lane == 0;
  float* scores = p.scores + static_cast<size_t>(token) * n_scores;
  if (is_last && n_scores > p.n_used) scores[p.n_used] = load_fresh(&logits[p.n_experts]);
  select(logits, p.n_experts, p.n_used, shared.selection);
  if (is_last) p.tickets[token] = 0;
  if (warp != 0) return;
  const int32_t* ids = shared.selection.ids;
  if (lane < p.n_used) {
    p.ids[static_cast<size_t>(token) * p.n_used + lane] = ids[lane];
    scores[lane] = shared.selection.logits[lane];
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
