#pragma once

#include <cstdint>

namespace redlite::gpu {

/// A copy from host memory to do: expert to slot.
struct SlotCopy {
  int32_t expert;
  int32_t slot;
};

/// What a layer's slots hold, in device memory and the GPU's own: the kernel that selects experts looks them
/// up, gives the misses the least recently used slots and lists what is to be copied there.
struct SlotTable {
  int32_t* slot_of;     ///< [n_experts], -1: not resident
  int32_t* expert_of;   ///< [n_slots], -1: none
  uint32_t* last_used;  ///< [n_slots], the layer's tick at its last use; 0: never
  uint32_t* tick;       ///< passes of this layer so far
  uint32_t* n_copies;   ///< of the running pass
  SlotCopy* copies;     ///< [n_used]
  uint64_t* hits;       ///< since the beginning
  uint64_t* misses;
  int32_t n_slots;  ///< at least n_used
};

}  // namespace redlite::gpu
