#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "quant/decode.h"

namespace redlite::quant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> round_trip(Type type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(type, values.size()));
  EXPECT_TRUE(encode(type, values.data(), bytes.data(), values.size()));
  std::vector<float> out(values.size());
  decode(type, bytes.data(), out.data(), out.size());
  return out;
}

bool fits(Type type, float value) {
  std::vector<float> values(32, 1.0f);
  values[7] = value;
  std::vector<std::byte> bytes(row_bytes(type, 32));
  return encode(type, values.data(), bytes.data(), 32);
}

TEST(Encode, Q8_0WritesTheBytesOfGgml) {
  // ggml_quantize_chunk of llama.cpp v0.5.0 for these values.
  constexpr uint8_t kExpected[34] = {77,  38,  129, 223, 61,  154, 248, 86,  180, 18,  112, 205,
                                     43,  137, 231, 69,  162, 0,   94,  187, 25,  119, 213, 51,
                                     144, 238, 76,  170, 8,   102, 195, 33,  127, 220};
  float values[32];
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i * 37 % 101 - 50) / 16;
  std::byte bytes[34];
  ASSERT_TRUE(encode(Type::Q8_0, values, bytes, 32));
  for (size_t i = 0; i < 34; ++i) EXPECT_EQ(static_cast<uint8_t>(bytes[i]), kExpected[i]) << i;
}

TEST(Encode, Q8_0IsWithinHalfAStep) {
  std::vector<float> values(320);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * std::exp(static_cast<float>(i / 32) - 5);
  }
  const std::vector<float> back = round_trip(Type::Q8_0, values);
  for (size_t block = 0; block < 10; ++block) {
    float largest = 0;
    for (size_t i = 32 * block; i < 32 * block + 32; ++i) largest = std::max(largest, std::abs(values[i]));
    // Half a step, and the scale's own rounding to F16.
    for (size_t i = 32 * block; i < 32 * block + 32; ++i) {
      EXPECT_NEAR(back[i], values[i], largest * (0.5 / 127 + 0x1p-11)) << i;
    }
  }
}

TEST(Encode, HalvesRoundToNearest) {
  const std::vector<float> values = {0, -0.0f, 1, 1 + 0x1p-11f, 1 + 0x1.8p-10f, 65504, 0x1p-24f, -3.1415927f};
  const std::vector<float> f16 = round_trip(Type::F16, values);
  const std::vector<float> bf16 = round_trip(Type::BF16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f16[i], f16_to_f32(f32_to_f16(values[i])));
    EXPECT_EQ(bf16[i], bf16_to_f32(f32_to_bf16(values[i])));
  }
  EXPECT_EQ(f16[3], 1.0f);  // a tie, to even
  EXPECT_EQ(round_trip(Type::F32, values), values);
}

TEST(Encode, SaysWhatDoesNotFit) {
  EXPECT_TRUE(fits(Type::F16, 65504));
  EXPECT_FALSE(fits(Type::F16, 65520));
  EXPECT_TRUE(fits(Type::F16, kInfinity));
  EXPECT_FALSE(fits(Type::BF16, std::numeric_limits<float>::max()));
  EXPECT_TRUE(fits(Type::Q8_0, 8e6f));
  EXPECT_FALSE(fits(Type::Q8_0, 1e7f));
  EXPECT_FALSE(fits(Type::Q8_0, kInfinity));
  EXPECT_FALSE(fits(Type::Q8_0, kNan));
}

TEST(Encode, Q8_0OfTinyValuesIsZero) {
  EXPECT_EQ(round_trip(Type::Q8_0, std::vector<float>(32, 1e-43f)), std::vector<float>(32, 0.0f));
  EXPECT_EQ(round_trip(Type::Q8_0, std::vector<float>(32, 0.0f)), std::vector<float>(32, 0.0f));
}

}  // namespace
}  // namespace redlite::quant
