#pragma once

#include <cstdint>

#include "gpu/kernel.h"

namespace redlite::gpu {

/// A copy from host memory to do: expert to slot.
struct SlotCopy {
  int32_t expert;
  int32_t slot;
};

/// What a layer's slots hold, in device memory and the GPU's own: the kernel that selects experts looks them
/// up, gives the misses the least recently used slots and lists what is to be copied there. Chunks of prompts
/// fill slots that nobody was given yet.
struct SlotTable {
  int32_t* slot_of;     ///< [n_experts], -1: not resident
  int32_t* expert_of;   ///< [n_slots], -1: none
  uint32_t* last_used;  ///< [n_slots], the layer's tick at its last use; 0: never
  uint32_t* tick;       ///< passes of this layer so far
  uint32_t* n_copies;   ///< of the running pass
  SlotCopy* copies;     ///< [n_used]
  uint32_t* hits;       ///< [n_experts], since the beginning; nullptr: not counted
  uint32_t* misses;     ///< [n_experts]
  int32_t n_slots;      ///< at least n_used
};

/// What the host needs to know of a layer's selection, in memory that both see.
struct RouteRecord {
  static constexpr int kMost = 32;
  uint32_t number;          ///< Step::number of the pass it belongs to; written last
  int32_t ids[kMost];       ///< [n_used], best first
  uint64_t entries[kMost];  ///< [n_used], the table's entries as they were found
};

/// Slots that the host manages. Its table says where a layer's experts are, in memory that both see: an entry
/// is slot_entry(), or 0 for an expert that is not there. The host alone writes it.
struct HostSlots {
  const uint64_t* table;  ///< [n_experts]; nullptr: nothing is looked up
  RouteRecord* record;    ///< nullptr: the host does not manage the slots
  uint32_t* stop;         ///< the early-out flag, raised where an expert is missing
};

/// An entry of the table: a slot of the layer's class, and the generation of its content.
RL_HOST_DEVICE constexpr uint64_t slot_entry(int32_t slot, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(slot + 1);
}
RL_HOST_DEVICE constexpr int32_t slot_of_entry(uint64_t entry) {
  return static_cast<int32_t>(static_cast<uint32_t>(entry)) - 1;
}

}  // namespace redlite::gpu
