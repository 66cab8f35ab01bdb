#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "quant/blocks.h"

namespace redlite::quant {

/// Random bytes of `blocks` blocks (or all the same byte `fill`) whose scales are finite and of a size as in
/// real models (1e-4 to 1e-1).
inline std::vector<std::byte> random_blocks(Type type, size_t blocks, std::mt19937& random, int fill = -1) {
  std::vector<std::byte> bytes(blocks * info(type).block_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(fill >= 0 ? static_cast<unsigned>(fill) : random());
  std::uniform_real_distribution<float> exponent(-4.0f, -1.0f);
  std::normal_distribution<float> normal;
  const auto scale = [&] {
    const float magnitude = std::pow(10.0f, exponent(random));
    return f32_to_f16(random() & 1 ? magnitude : -magnitude);
  };
  if (is_float(type)) {
    const size_t size = info(type).block_bytes;
    for (size_t i = 0; i < blocks; ++i) {
      const float value = normal(random) * 0.05f;
      const uint16_t half = type == Type::F16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(&bytes[i * size], type == Type::F32 ? static_cast<const void*>(&value) : &half, size);
    }
    return bytes;
  }
  with_block(type, [&]<typename Block>() {
    for (size_t i = 0; i < blocks; ++i) {
      Block block;
      std::memcpy(&block, &bytes[i * sizeof block], sizeof block);
      if constexpr (requires { block.d; }) block.d = scale();
      if constexpr (requires { block.m; }) block.m = scale();
      if constexpr (requires { block.dmin; }) block.dmin = scale();
      if constexpr (requires { block.e; }) block.e = static_cast<uint8_t>(112 + random() % 14);
      if constexpr (std::is_same_v<Block, BlockIQ1_M>) {
        const uint16_t d = scale();
        for (int word = 0; word < 4; ++word) {
          uint8_t& top = block.scales[2 * word + 1];
          top = static_cast<uint8_t>((top & 0x0f) | (((d >> (4 * word)) & 0x0f) << 4));
        }
      }
      std::memcpy(&bytes[i * sizeof block], &block, sizeof block);
    }
  });
  return bytes;
}

}  // namespace redlite::quant
