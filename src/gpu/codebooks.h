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

/// True for the types whose units look up them.
RL_HOST_DEVICE constexpr bool has_codebook(quant::Type type) {
  using quant::Type;
  return type == Type::IQ2_XXS || type == Type::IQ2_XS || type == Type::IQ2_S || type == Type::IQ3_XXS ||
         type == Type::IQ3_S || type == Type::IQ1_S || type == Type::IQ1_M;
}

/// Copies them to the device; done when the stream has come to it.
Buffer upload_codebooks(Device& device, Stream& stream);

}  // namespace redlite::gpu
