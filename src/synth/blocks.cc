#include "synth/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "quant/decode.h"

namespace redlite::synth {

namespace {

using quant::Type;

void put_f16(std::byte* at, float value) {
  const uint16_t h = f32_to_f16(value);
  std::memcpy(at, &h, 2);
}

uint8_t& byte_at(std::byte* block, size_t i) {
  return reinterpret_cast<uint8_t*>(block)[i];
}

// The six-bit scales and minima of Q4_K and Q5_K in their 12 bytes: the first four of each in the low six
// bits, the upper two bits of the last four in what is left. `min_unit` is what makes minimum == scale centre
// the codes; the minima differ from that by up to two, so that mistaking one for the other shows.
void put_k_scales(std::byte* at, Random& random) {
  const uint64_t bits = random.bits();
  uint8_t scale[8];
  uint8_t minimum[8];
  for (unsigned i = 0; i < 8; ++i) {
    const int s = 8 + static_cast<int>((bits >> (7 * i) & 0x7f) * 56 >> 7);
    const int m = s + static_cast<int>((bits >> (7 * i) & 0x7f) % 5) - 2;
    scale[i] = static_cast<uint8_t>(s);
    minimum[i] = static_cast<uint8_t>(std::min(m, 63));
  }
  for (unsigned i = 0; i < 4; ++i) {
    byte_at(at, i) = static_cast<uint8_t>(scale[i] | scale[i + 4] >> 4 << 6);
    byte_at(at, i + 4) = static_cast<uint8_t>(minimum[i] | minimum[i + 4] >> 4 << 6);
    byte_at(at, i + 8) = static_cast<uint8_t>((scale[i + 4] & 15) | (minimum[i + 4] & 15) << 4);
  }
}

// Gives a block of random bytes its scale d. Types whose codes are not symmetric get a random sign or a
// matching minimum, so that the mean of the weights is zero.
void set_scale(Type type, std::byte* block, float d, Random& random) {
  const uint64_t bits = random.bits();
  d *= 0.88f + 0.24f * static_cast<float>(bits >> 48) * 0x1p-16f;
  const float signed_d = bits & 1 ? d : -d;
  switch (type) {
    case Type::Q4_0:
    case Type::Q5_0:
    case Type::IQ4_NL:
      put_f16(block, signed_d);
      break;
    case Type::Q4_1:
      put_f16(block, d);
      put_f16(block + 2, -7.5f * d);
      break;
    case Type::Q5_1:
      put_f16(block, d);
      put_f16(block + 2, -15.5f * d);
      break;
    case Type::Q8_0:
      put_f16(block, d);
      for (size_t i = 2; i < 34; ++i)  // quantisers use -127..127; kernels may count on it
        byte_at(block, i) = byte_at(block, i) == 0x80 ? 0x81 : byte_at(block, i);
      break;
    case Type::Q2_K:
      for (size_t i = 0; i < 16; ++i) {  // minimum = scale and up to one more or less
        const unsigned scale = byte_at(block, i) & 15u;
        const unsigned minimum = std::min(15u, scale + (byte_at(block, i) >> 4) % 3 - (scale > 0));
        byte_at(block, i) = static_cast<uint8_t>(scale | minimum << 4);
      }
      put_f16(block + 80, d);
      put_f16(block + 82, 1.5f * d);
      break;
    case Type::Q3_K:
      put_f16(block + 108, d);
      break;
    case Type::Q4_K:
      put_f16(block, d);
      put_f16(block + 2, 7.5f * d);
      put_k_scales(block + 4, random);
      break;
    case Type::Q5_K:
      put_f16(block, d);
      put_f16(block + 2, 15.5f * d);
      put_k_scales(block + 4, random);
      break;
    case Type::Q6_K:
      put_f16(block + 208, d);
      break;
    case Type::IQ1_M: {  // the f16 scale lies in the top four bits of four 16-bit words
      const uint16_t h = f32_to_f16(d);
      for (unsigned i = 0; i < 4; ++i) {
        uint8_t& top = byte_at(block, 48 + 2 * i + 1);
        top = static_cast<uint8_t>((top & 0x0f) | (h >> (4 * i) & 15) << 4);
      }
      break;
    }
    default:  // the other types of 256 begin with d, all other bits are free
      put_f16(block, d);
  }
}

// MXFP4 scales are powers of two: the two next to `d`, mixed so that the variance is that of d.
void set_exponent(std::byte* block, float d, Random& random) {
  const float exponent = std::log2(d);
  const float low = std::floor(exponent);
  const float share = (std::exp2(2 * (exponent - low)) - 1) / 3;
  const int e = 128 + static_cast<int>(low) + (random.uniform() < share ? 1 : 0);
  byte_at(block, 0) = static_cast<uint8_t>(std::clamp(e, 0, 254));
}

void write_blocks(Type type, Random& random, float scale, std::span<std::byte> out) {
  const auto store_each = [&]<typename T>(auto convert) {
    for (size_t i = 0; i < out.size(); i += sizeof(T)) {
      const T value = convert(scale * random.normal());
      std::memcpy(out.data() + i, &value, sizeof(T));
    }
  };
  if (type == Type::F32) return store_each.template operator()<float>([](float x) { return x; });
  if (type == Type::F16) return store_each.template operator()<uint16_t>(f32_to_f16);
  if (type == Type::BF16) return store_each.template operator()<uint16_t>(f32_to_bf16);
  random.fill(out);
  const size_t block_bytes = quant::info(type).block_bytes;
  for (size_t i = 0; i < out.size(); i += block_bytes) {
    if (type == Type::MXFP4)
      set_exponent(out.data() + i, scale, random);
    else
      set_scale(type, out.data() + i, scale, random);
  }
}

}  // namespace

BlockWriter::BlockWriter(Type type) : type_(type) {
  constexpr size_t kSample = 1 << 18;
  std::vector<std::byte> bytes(quant::row_bytes(type, kSample));
  std::vector<float> values(kSample);
  Random random(1);
  write_blocks(type, random, 1, bytes);
  quant::decode(type, bytes.data(), values.data(), kSample);
  double squares = 0;
  for (const float v : values) squares += double{v} * v;
  unit_ = static_cast<float>(std::sqrt(squares / kSample));
}

void BlockWriter::write(Random& random, float deviation, std::span<std::byte> out) const {
  RL_CHECK(out.size() % quant::info(type_).block_bytes == 0, "{} bytes", out.size());
  write_blocks(type_, random, deviation / unit_, out);
}

}  // namespace redlite::synth
