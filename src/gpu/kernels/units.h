#pragma once

#include <cstdint>

#include "gpu/kernels/unit_parts.h"
#include "gpu/kernels/units_of_256.h"
#include "gpu/kernels/units_of_32.h"
#include "gpu/kernels/units_with_codebook.h"

/// Units of quantised weights in registers. For each type
///     struct Unit<T> {
///       static constexpr int kValues;       // 64 or 32
///       static constexpr int kMinStrips;    // that share a min, and a scale; 0: the type has no mins
///       template <typename Planes>                               // PlaneMatrix or StagedPlanes
///       static Unit load(const Planes& w, uint32_t i);             // unit i of the matrix: loads only
///       void unpack(const Codebooks* books, UnitValues<kValues>& out) const;   // arithmetic only
///     };
/// quant/blocks.h says what the bits mean, planes.h how they lie. Value v of a unit is
/// scale[v / 16] * q[v] - min[v / 16], where every product is exact in binary32.
namespace redlite::gpu {

/// Copies those that `type` needs to `memory` (sizeof(Codebooks), shared), with all threads of the block; a
/// sync_block() comes before they are used. Look-ups through L1 were what the products waited for: it serves
/// few lines at a time, shared memory 32 words.
RL_DEVICE inline const Codebooks* stage_codebooks(quant::Type type, const Codebooks* from,
                                                  std::byte* memory) {
  using quant::Type;
  if (!has_codebook(type)) return from;
  auto* to = reinterpret_cast<Codebooks*>(memory);
  const auto copy = [](auto& target, const auto& source) {
    for (uint32_t i = static_cast<uint32_t>(simt::thread_index()); i < sizeof(target) / 16;
         i += static_cast<uint32_t>(simt::block_threads())) {
      reinterpret_cast<simt::U32x4*>(&target)[i] =
          simt::load_cached(reinterpret_cast<const simt::U32x4*>(&source) + i);
    }
  };
  if (type == Type::IQ2_XXS) copy(to->iq2_xxs, from->iq2_xxs);
  if (type == Type::IQ2_XS) copy(to->iq2_xs, from->iq2_xs);
  if (type == Type::IQ2_XXS || type == Type::IQ2_XS) copy(to->even_signs, from->even_signs);
  if (type == Type::IQ2_S) copy(to->iq2_s, from->iq2_s);
  if (type == Type::IQ3_XXS) copy(to->iq3_xxs, from->iq3_xxs);
  if (type == Type::IQ3_S) copy(to->iq3_s, from->iq3_s);
  if (type == Type::IQ1_S || type == Type::IQ1_M) copy(to->iq1, from->iq1);
  return to;
}

}  // namespace redlite::gpu
