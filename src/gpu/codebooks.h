#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "quant/type.h"

namespace redlite::gpu {

/// The codebooks of the IQ types (quant/codebooks.h) as kernels look them up: every value's code in a nibble,
/// ready to select a byte with simt::permute_bytes(). In device memory, 13 KiB.
struct Codebooks {
  uint32_t iq2_xxs[256];  ///< nibble: number of the level, 0 to 3
  uint32_t iq2_xs[512];
  uint32_t iq2_s[1024];
  uint32_t iq1[2048];        ///< nibble: 0, 1, 2 for -1, 0, 1
  uint32_t even_signs[128];  ///< nibble: 4 where the sign pattern (with its parity bit) is negative
  uint16_t iq3_xxs[256];     ///< nibble: number of the level, 0 to 7
  uint16_t iq3_s[512];
};

/// A type's codebook as a block of threads has it in shared memory: word e of copy c at e * copies + c, first
/// of `entries`, then of `signs`.
struct BookShape {
  uint32_t entries, signs, copies;
  RL_HOST_DEVICE constexpr uint32_t words() const { return (entries + signs) * copies; }
};
RL_HOST_DEVICE constexpr BookShape book_shape(quant::Type type) {
  using quant::Type;
  switch (type) {
    case Type::IQ2_XXS:
      return {256, 128, 8};
    case Type::IQ2_XS:
      return {512, 128, 4};
    case Type::IQ2_S:
      return {1024, 0, 2};
    case Type::IQ3_XXS:
      return {256, 0, 8};
    case Type::IQ3_S:
      return {512, 0, 4};
    case Type::IQ1_S:
    case Type::IQ1_M:
      return {2048, 0, 1};
    default:
      return {0, 0, 1};
  }
}

/// Codebooks as they lie in device memory: behind them all types' as they are staged, one after another.
struct DeviceCodebooks : Codebooks {
  static RL_HOST_DEVICE constexpr uint32_t at(quant::Type type) {
    using quant::Type;
    uint32_t words = 0;
    for (const Type t : {Type::IQ2_XXS, Type::IQ2_XS, Type::IQ2_S, Type::IQ3_XXS, Type::IQ3_S, Type::IQ1_S}) {
      if (t == type || (t == Type::IQ1_S && type == Type::IQ1_M)) return words;
      words += book_shape(t).words();
    }
    return words;
  }
  alignas(16) uint32_t staged[13824];
};
static_assert(DeviceCodebooks::at(quant::Type::F32) == 13824);

/// True for the types whose units look up them.
RL_HOST_DEVICE constexpr bool has_codebook(quant::Type type) {
  using quant::Type;
  return type == Type::IQ2_XXS || type == Type::IQ2_XS || type == Type::IQ2_S || type == Type::IQ3_XXS ||
         type == Type::IQ3_S || type == Type::IQ1_S || type == Type::IQ1_M;
}

/// Copies them to the device; done when the stream has come to it.
Buffer upload_codebooks(Device& device, Stream& stream);

}  // namespace redlite::gpu
