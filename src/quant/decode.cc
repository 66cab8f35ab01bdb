#include "quant/decode.h"

#include <cstring>

#include "quant/blocks.h"

namespace redlite::quant {
namespace {

template <typename Block>
void decode_blocks(const std::byte* src, float* dst, size_t values) {
  Unpacked<Block::kValues> unpacked;
  for (size_t at = 0; at < values; at += Block::kValues, src += sizeof(Block), dst += Block::kValues) {
    Block block;
    std::memcpy(&block, src, sizeof block);
    unpack(block, unpacked);
    for (int i = 0; i < Block::kValues; ++i) {
      dst[i] = unpacked.scale[i / 16] * static_cast<float>(unpacked.q[i]) - unpacked.min[i / 16];
    }
  }
}

template <float (*Convert)(uint16_t)>
void decode_halves(const std::byte* src, float* dst, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + 2 * i, 2);
    dst[i] = Convert(bits);
  }
}

}  // namespace

void decode(Type type, const std::byte* src, float* dst, size_t values) {
  switch (type) {
    case Type::F32:
      std::memcpy(dst, src, 4 * values);
      return;
    case Type::F16:
      return decode_halves<f16_to_f32>(src, dst, values);
    case Type::BF16:
      return decode_halves<bf16_to_f32>(src, dst, values);
    default:
      break;
  }
  with_block(type, [&]<typename Block>() { decode_blocks<Block>(src, dst, values); });
}

}  // namespace redlite::quant
