#include "gpu/kernels/prefill_route.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/select.h"

namespace redlite::gpu {

struct PrefillSelect::Shared {
  Selection selection;
};
struct PrefillSort::Shared {
  int count[kMaxExperts];  // of each expert
  int next[kMaxExperts];   // place of its next selection
  int places[kThreads / 32], tiles[kThreads / 32];
};

RL_RUN void PrefillSelect::run(const Params& p, Shared& shared) {
  const int lane = simt::lane_index(), token = static_cast<int>(simt::block_index().x);
  simt::let_next_start();
  simt::wait_for_previous();
  const float* logits = p.logits + static_cast<size_t>(token) * static_cast<size_t>(p.n_rows);
  const Selection& selection = shared.selection;
  select(logits, p.n_experts, p.n_used, shared.selection);
  if (simt::warp_index() != 0) return;
  const float share = share_of(lane < p.n_used ? selection.logits[lane] : 0, p.n_used, p.scale);
  const int n_shares = p.n_used + p.n_rows - p.n_experts;
  float* shares = p.shares + static_cast<size_t>(token) * static_cast<size_t>(n_shares);
  if (lane < p.n_used) {
    p.ids[static_cast<size_t>(token) * static_cast<size_t>(p.n_used) + static_cast<size_t>(lane)] =
        selection.ids[lane];
    shares[lane] = share;
  } else if (lane == p.n_used && n_shares > p.n_used) {
    shares[lane] = sigmoid(logits[p.n_experts]);
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
