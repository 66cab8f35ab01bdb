#pragma once

#include "gpu/kernels/slots.h"
#include "gpu/simt.h"

/// The GPU's side of slots that the host manages; for kernels only.
namespace redlite::gpu {

/// Looks the selected experts up in the host's table, raises the early-out flag if one is missing, and tells
/// the host what was selected and found. `slots` (nullptr: nobody needs them) gets the slots, 0 for what is
/// missing: kernels may ask for a slot's first bytes before they know that they are skipped. By one warp.
RL_DEVICE inline void tell_host(const HostSlots& host, const int32_t* ids, int n_used, uint32_t number,
                                int32_t* slots) {
  const int lane = simt::lane_index();
  bool missing = false;
  if (lane < n_used) {
    const uint64_t entry = host.table == nullptr ? 0 : simt::load_acquire_system(host.table + ids[lane]);
    missing = entry == 0;
    host.record->ids[lane] = ids[lane];
    host.record->entries[lane] = entry;
    if (slots != nullptr) slots[lane] = missing ? 0 : slot_of_entry(entry);
    simt::fence_system();
  }
  const bool stop = simt::any(missing);
  simt::sync_warp();
  if (lane == 0) {
    if (host.stop != nullptr && stop) *host.stop = 1;
    simt::store_release_system(&host.record->number, number);
  }
}

}  // namespace redlite::gpu
