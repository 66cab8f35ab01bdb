#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "experts/pool.h"
#include "model/model.h"

namespace redlite::experts {

/// Alignment of file offset, memory and length in direct I/O: a page, a multiple of every common sector size.
inline constexpr size_t kIoAlignment = 4096;

constexpr uint64_t align_down(uint64_t x) {
  return x / kIoAlignment * kIoAlignment;
}
constexpr uint64_t align_up(uint64_t x) {
  return align_down(x + kIoAlignment - 1);
}

/// Where the routed experts of a model lie. Not owned.
struct ExpertFiles {
  std::span<const model::ExpertLayer> layers;
  int n_experts = 0;
  int n_experts_used = 0;
  std::vector<const MappedFile*> shards;

  uint64_t expert_bytes() const;  ///< of all experts
  model::Model::Expert mapped(int layer, int expert) const;
};

ExpertFiles expert_files(const model::Model& model);

/// A piece of the file that an expert needs: [offset, offset + bytes), read to slot_offset. slot_offset and
/// offset are equal modulo kIoAlignment, so that the aligned range around the piece can be read instead; no
/// other segment of the placement uses that range of the slot.
struct Segment {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t slot_offset = 0;
};

/// How one expert is laid out in a slot: matrices adjacent in the file (gate and up when fused) are one
/// segment; the segments follow each other.
struct Placement {
  std::array<Segment, 3> segments;
  int n_segments = 0;
  size_t gate = 0;  ///< where each matrix starts in the slot
  size_t up = 0;
  size_t down = 0;
  size_t slot_bytes = 0;  ///< a multiple of kIoAlignment

  std::span<const Segment> used() const { return {segments.data(), static_cast<size_t>(n_segments)}; }
};

Placement place(const model::ExpertLayer& layer, int expert);

/// The size classes of a model: one for each distinct triplet size, its slots large enough for any placement
/// of its layers. n_slots is what would hold every expert.
struct SizeClasses {
  std::vector<int> class_of_layer;
  std::vector<SlotClass> classes;
  std::vector<uint64_t> triplet_bytes;  ///< of each class

  /// Bytes of the slots that hold every expert, and of `n_experts_used` slots of each class.
  uint64_t full_bytes() const;
  uint64_t minimum_bytes(int n_experts_used) const;
};

SizeClasses size_classes(const ExpertFiles& files);

/// Bytes of the reads that fill a cache: an expert's largest matrix, which is read in pieces of 256 KiB.
size_t read_size(const model::Model& model);

/// Divides `bytes` among the classes: each gets n_experts_used slots, and what is left is shared in
/// proportion to the bytes each class lacks to hold all of its experts. Throws Error when bytes is below the
/// minimum.
std::vector<SlotClass> divide(const SizeClasses& sizes, int n_experts_used, uint64_t bytes);

}  // namespace redlite::experts
