#include "experts/layout.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/memory.h"

namespace redlite::experts {
namespace {

/// The span of the aligned range around a piece of a file.
uint64_t aligned_span(uint64_t offset, uint64_t bytes) {
  return align_up(offset + bytes) - align_down(offset);
}

}  // namespace

uint64_t ExpertFiles::expert_bytes() const {
  uint64_t bytes = 0;
  for (const model::ExpertLayer& layer : layers) {
    bytes += layer.triplet_bytes() * static_cast<uint64_t>(n_experts);
  }
  return bytes;
}

model::Model::Expert ExpertFiles::mapped(int layer, int expert) const {
  const auto view = [&](const model::ExpertTensor& t) {
    return model::Matrix{shards[t.shard]->bytes().data() + t.offset_of(expert), t.type, t.rows, t.cols};
  };
  const model::ExpertLayer& l = layers[static_cast<size_t>(layer)];
  return {view(l.gate), view(l.up), view(l.down)};
}

ExpertFiles expert_files(const model::Model& model) {
  ExpertFiles files;
  files.layers = model.experts();
  files.n_experts = model.config().n_experts;
  files.n_experts_used = model.config().n_experts_used;
  for (const MappedFile& shard : model.file().shards()) files.shards.push_back(&shard);
  return files;
}

Placement place(const model::ExpertLayer& layer, int expert) {
  struct Piece {
    const model::ExpertTensor* tensor;
    uint64_t offset;
    size_t Placement::*start;
  };
  std::array<Piece, 3> pieces = {{{&layer.gate, layer.gate.offset_of(expert), &Placement::gate},
                                  {&layer.up, layer.up.offset_of(expert), &Placement::up},
                                  {&layer.down, layer.down.offset_of(expert), &Placement::down}}};
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.tensor->shard != b.tensor->shard ? a.tensor->shard < b.tensor->shard : a.offset < b.offset;
  });
  Placement placement;
  for (const Piece& piece : pieces) {
    Segment* last = placement.n_segments > 0
                        ? &placement.segments[static_cast<size_t>(placement.n_segments - 1)]
                        : nullptr;
    if (last != nullptr && last->shard == piece.tensor->shard && last->offset + last->bytes == piece.offset) {
      placement.*piece.start = last->slot_offset + last->bytes;
      last->bytes += piece.tensor->expert_bytes;
    } else {
      const size_t base =
          last == nullptr ? 0 : align_down(last->slot_offset) + aligned_span(last->offset, last->bytes);
      Segment& segment = placement.segments[static_cast<size_t>(placement.n_segments++)];
      segment = {piece.tensor->shard, piece.offset, piece.tensor->expert_bytes,
                 base + piece.offset % kIoAlignment};
      placement.*piece.start = segment.slot_offset;
      last = &segment;
    }
    placement.slot_bytes = align_down(last->slot_offset) + aligned_span(last->offset, last->bytes);
  }
  return placement;
}

uint64_t SizeClasses::full_bytes() const {
  uint64_t bytes = 0;
  for (const SlotClass& c : classes) bytes += c.slot_bytes * static_cast<uint64_t>(c.n_slots);
  return bytes;
}

uint64_t SizeClasses::minimum_bytes(int n_experts_used) const {
  uint64_t bytes = 0;
  for (const SlotClass& c : classes) bytes += c.slot_bytes * static_cast<uint64_t>(n_experts_used);
  return bytes;
}

size_t read_size(const model::Model& model) {
  uint64_t largest = 0;
  for (const model::ExpertLayer& layer : model.experts()) {
    for (const model::ExpertTensor* tensor : {&layer.gate, &layer.up, &layer.down})
      largest = std::max(largest, tensor->expert_bytes);
  }
  return std::min(align_up(largest), uint64_t{256} << 10);
}

SizeClasses size_classes(const ExpertFiles& files) {
  SizeClasses sizes;
  std::map<uint64_t, int> class_of_size;
  for (const model::ExpertLayer& layer : files.layers) {
    const auto [it, is_new] = class_of_size.try_emplace(layer.triplet_bytes(), sizes.classes.size());
    if (is_new) {
      sizes.classes.emplace_back();
      sizes.triplet_bytes.push_back(layer.triplet_bytes());
    }
    sizes.class_of_layer.push_back(it->second);
    SlotClass& c = sizes.classes[static_cast<size_t>(it->second)];
    c.n_slots += files.n_experts;
    for (int e = 0; e < files.n_experts; ++e)
      c.slot_bytes = std::max(c.slot_bytes, place(layer, e).slot_bytes);
  }
  return sizes;
}

std::vector<SlotClass> divide(const SizeClasses& sizes, int n_experts_used, uint64_t bytes) {
  const uint64_t minimum = sizes.minimum_bytes(n_experts_used);
  if (bytes < minimum) {
    std::string needs;
    for (size_t i = 0; i < sizes.classes.size(); ++i) {
      needs += fmt::format("{}{} of {} KiB", i == 0 ? "" : ", ", n_experts_used,
                           (sizes.triplet_bytes[i] + 1023) / 1024);
    }
    fail(
        "an expert cache of {:.1f} MiB cannot hold one layer's experts of one token (for each size of "
        "expert: "
        "{}); the least that works is --cache-mib {}",
        static_cast<double>(bytes) / static_cast<double>(kMiB), needs, (minimum + kMiB - 1) / kMiB);
  }
  // In pages, so that the product below stays exact in 64 bits.
  const uint64_t lacking = (sizes.full_bytes() - minimum) / kIoAlignment;
  const uint64_t left = std::min((bytes - minimum) / kIoAlignment, lacking);
  std::vector<SlotClass> classes = sizes.classes;
  for (SlotClass& c : classes) {
    const uint64_t slot_pages = c.slot_bytes / kIoAlignment;
    const uint64_t wanted = slot_pages * static_cast<uint64_t>(c.n_slots - n_experts_used);
    const uint64_t share = lacking == 0 ? 0 : left * wanted / lacking;
    c.n_slots = n_experts_used + static_cast<int>(share / slot_pages);
  }
  return classes;
}

}  // namespace redlite::experts
