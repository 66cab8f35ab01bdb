#include "gpu/kernels/prefill_route.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/router_key.h"
#include "model/router.h"

namespace redlite::gpu {

struct PrefillSelect::Shared {};
struct PrefillSort::Shared {
  int count[kMaxExperts];  // of each expert
  int next[kMaxExperts];   // place of its next selection
  int places[kThreads / 32], tiles[kThreads / 32];
};

RL_RUN void PrefillSelect::run(const Params& p, Shared&) {
  const int lane = simt::lane_index(), warp = simt::warp_index();
  const int token = static_cast<int>(simt::block_index().x * kTokens) + warp;
  simt::let_next_start();
  simt::wait_for_previous();
  if (token >= p.n_tokens) return;
  const float* from = p.logits + static_cast<size_t>(token) * static_cast<size_t>(p.n_rows);
  float* logits = simt::dynamic_shared<float>() + 2 * warp * p.n_experts;
  float* exponentials = logits + p.n_experts;
  for (int i = lane; i < p.n_experts; i += simt::kWarpSize) logits[i] = from[i];
  simt::sync_warp();

  // Lane i keeps the i-th best.
  uint64_t mine = best_of_lane(logits, p.n_experts, ~uint64_t{0});
  int32_t id = 0;
  for (int i = 0; i < p.n_used; ++i) {
    const uint64_t best = simt::warp_max(mine);
    if (mine == best) mine = best_of_lane(logits, p.n_experts, best);
    if (lane == i) id = expert_of_key(best);
  }
  const float largest = logits[simt::shuffle(id, 0)];
  for (int i = lane; i < p.n_experts; i += simt::kWarpSize)
    exponentials[i] = model::router_exp(logits[i] - largest);
  simt::sync_warp();
  // Every lane adds all of them up, in their order.
  float total = 0;
  for (int i = 0; i < p.n_experts; ++i) total += exponentials[i];
  const float share = lane < p.n_used ? exponentials[id] / total : 0;
  float sum = 0;
  for (int i = 0; i < p.n_used; ++i) sum += simt::shuffle(share, i);
  if (sum < 0x1p-14f) sum = 0x1p-14f;
  const int n_shares = p.n_used + p.n_rows - p.n_experts;
  float* shares = p.shares + static_cast<size_t>(token) * static_cast<size_t>(n_shares);
  if (lane < p.n_used) {
    p.ids[static_cast<size_t>(token) * static_cast<size_t>(p.n_used) + static_cast<size_t>(lane)] = id;
    shares[lane] = share / sum * p.scale;
  } else if (lane == p.n_used && n_shares > p.n_used) {
    shares[lane] = sigmoid(from[p.n_experts]);
  }
}

RL_RUN void PrefillSort::run(const Params& p, Shared& shared) {
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const int n = p.n_tokens * p.n_used;
  simt::let_next_start();
  simt::wait_for_previous();
  shared.count[thread] = 0;
  simt::sync_block();
  for (int i = thread; i < n; i += kThreads) simt::atomic_add(&shared.count[p.ids[i]], 1);
  simt::sync_block();

  // Places and tiles in front of those of expert `thread`.
  const int count = shared.count[thread], n_tiles = (count + kTileTokens - 1) / kTileTokens;
  int places = count, tiles = n_tiles;  // up to and with this expert, first those of the warp
  for (int delta = 1; delta < simt::kWarpSize; delta *= 2) {
    const int more_places = simt::shuffle_up(places, delta), more_tiles = simt::shuffle_up(tiles, delta);
    if (lane >= delta) {
      places += more_places;
      tiles += more_tiles;
    }
  }
  if (lane == simt::kWarpSize - 1) {
    shared.places[warp] = places;
    shared.tiles[warp] = tiles;
  }
  simt::sync_block();
  for (int w = 0; w < warp; ++w) {
    places += shared.places[w];
    tiles += shared.tiles[w];
  }
  const int first = places - count, first_tile = tiles - n_tiles;
  shared.next[thread] = first;
  if (thread < p.n_experts) {
    p.first_tile[thread] = first_tile;
    if (thread == p.n_experts - 1) p.first_tile[p.n_experts] = tiles;
    for (int i = 0; i < n_tiles; ++i) {
      const int left = count - i * kTileTokens;
      p.tiles[first_tile + i] = {thread, first + i * kTileTokens, left < kTileTokens ? left : kTileTokens};
    }
  }
  simt::sync_block();
  for (int i = thread; i < n; i += kThreads) {
    const int place = simt::atomic_add(&shared.next[p.ids[i]], 1);
    p.token[place] = i / p.n_used;
    p.selection[place] = i;
  }
}

RL_KERNEL(PrefillSelect);
RL_KERNEL(PrefillSort);

}  // namespace redlite::gpu
