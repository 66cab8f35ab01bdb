#include "quant/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "quant/blocks.h"

namespace redlite::quant {
namespace {

template <uint16_t (*to_half)(float), float (*to_float)(uint16_t)>
bool encode_halves(const float* src, std::byte* dst, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    const uint16_t half = to_half(src[i]);
    if (std::isinf(to_float(half)) && !std::isinf(src[i])) return false;
    std::memcpy(dst + i * sizeof(half), &half, sizeof(half));
  }
  return true;
}

bool encode_q8_0(const float* x, BlockQ8_0& block) {
  float largest = 0;
  for (int i = 0; i < BlockQ8_0::kValues; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / 127;
  block.d = f32_to_f16(scale);
  if (std::isinf(f16_to_f32(block.d))) return false;
  // A scale so small that its inverse overflows is 0 in F16, and so are the values.
  const float inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < BlockQ8_0::kValues; ++i) {
    block.qs[i] = std::isinf(inverse) ? int8_t{0} : static_cast<int8_t>(std::round(x[i] * inverse));
  }
  return true;
}

}  // namespace

bool can_encode(Type type) {
  return type == Type::F32 || type == Type::F16 || type == Type::BF16 || type == Type::Q8_0;
}

bool encode(Type type, const float* src, std::byte* dst, size_t values) {
  RL_CHECK(values % info(type).block_values == 0, "{} values of {}", values, name(type));
  switch (type) {
    case Type::F32:
      std::memcpy(dst, src, values * sizeof(float));
      return true;
    case Type::F16:
      return encode_halves<f32_to_f16, f16_to_f32>(src, dst, values);
    case Type::BF16:
      return encode_halves<f32_to_bf16, bf16_to_f32>(src, dst, values);
    case Type::Q8_0:
      for (size_t i = 0; i < values; i += BlockQ8_0::kValues) {
        BlockQ8_0 block;
        if (!encode_q8_0(src + i, block)) return false;
        std::memcpy(dst, &block, sizeof(block));
        dst += sizeof(block);
      }
      return true;
    default:
      RL_CHECK(false, "cannot encode {}", name(type));
  }
}

}  // namespace redlite::quant
