#include "quant/decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "quant/blocks.h"
#include "quant/random_blocks.h"

namespace redlite::quant {
namespace {

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> out;
  for (const float v : values) out.push_back(std::bit_cast<uint32_t>(v));
  return out;
}

std::vector<float> decoded(Type type, std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / info(type).block_bytes * info(type).block_values);
  decode(type, bytes.data(), out.data(), out.size());
  return out;
}

template <typename Block>
std::vector<float> decoded(const Block& block) {
  return decoded(Block::kType, std::as_bytes(std::span(&block, 1)));
}

TEST(Decode, EqualsGgmlBitForBit) {
  const std::string file = read_text_file(REDLITE_SOURCE_DIR "/tests/quant/golden/blocks.bin");
  size_t at = 0;
  const auto take = [&](void* to, size_t size) {
    ASSERT_LE(at + size, file.size());
    std::memcpy(to, file.data() + at, size);
    at += size;
  };
  std::set<Type> seen;
  while (at < file.size()) {
    uint32_t header[2];
    take(header, sizeof header);
    const TypeInfo* type = find_type(header[0]);
    ASSERT_NE(type, nullptr) << header[0];
    for (uint32_t block = 0; block < header[1]; ++block) {
      std::vector<std::byte> bytes(type->block_bytes);
      std::vector<float> expected(type->block_values);
      take(bytes.data(), bytes.size());
      take(expected.data(), 4 * expected.size());
      ASSERT_EQ(bits(decoded(type->type, bytes)), bits(expected)) << type->name << " block " << block;
    }
    seen.insert(type->type);
  }
  EXPECT_EQ(seen.size(), all_types().size());
}

TEST(Decode, NeedsNoAlignment) {
  std::mt19937 random(1);
  for (const TypeInfo& type : all_types()) {
    const std::vector<std::byte> blocks = random_blocks(type.type, 3, random);
    std::vector<std::byte> shifted(blocks.size() + 1);
    std::copy(blocks.begin(), blocks.end(), shifted.begin() + 1);
    EXPECT_EQ(bits(decoded(type.type, std::span(shifted).subspan(1))), bits(decoded(type.type, blocks)))
        << type.name;
  }
}

TEST(Decode, EachBlockStandsAlone) {
  std::mt19937 random(2);
  for (const TypeInfo& type : all_types()) {
    const std::vector<std::byte> blocks = random_blocks(type.type, 5, random);
    const std::vector<float> all = decoded(type.type, blocks);
    for (size_t i = 0; i < 5; ++i) {
      const std::span block = std::span(blocks).subspan(i * type.block_bytes, type.block_bytes);
      const std::span part = std::span(all).subspan(i * type.block_values, type.block_values);
      ASSERT_EQ(bits(decoded(type.type, block)), bits(part)) << type.name << ' ' << i;
    }
  }
}

// The formulas of docs/formats.md on blocks filled by hand.

TEST(Decode, Q4_0ByHand) {
  BlockQ4_0 b{};
  b.d = f32_to_f16(0.5f);
  b.qs[0] = 0xf0;
  b.qs[15] = 0x08;
  const std::vector<float> v = decoded(b);
  EXPECT_EQ(v[0], -4.0f);
  EXPECT_EQ(v[16], 3.5f);
  EXPECT_EQ(v[15], 0.0f);
  EXPECT_EQ(v[31], -4.0f);
}

TEST(Decode, Q5_1ByHand) {
  BlockQ5_1 b{};
  b.d = f32_to_f16(2.0f);
  b.m = f32_to_f16(-1.0f);
  b.qs[3] = 0x21;
  b.qh[0] = 0x08;  // the fifth bit of value 3
  b.qh[2] = 0x08;  // and of value 19
  const std::vector<float> v = decoded(b);
  EXPECT_EQ(v[3], 2.0f * 17 - 1);
  EXPECT_EQ(v[19], 2.0f * 18 - 1);
  EXPECT_EQ(v[4], -1.0f);
}

TEST(Decode, Q4_KScalesOfBothHalves) {
  BlockQ4_K b{};
  b.d = f32_to_f16(1.0f);
  b.dmin = f32_to_f16(0.5f);
  b.scales[1] = 0x80 | 5;  // group 1: scale 5; high bits 2 of group 5's scale
  b.scales[5] = 0x40 | 7;  // group 1: min 7; high bits 1 of group 5's min
  b.scales[9] = 0x3c;      // group 5: low bits: scale 12, min 3
  b.qs[0] = 0x90;          // group 1, value 0: 9
  b.qs[64 + 31] = 0xa0;    // group 5, value 31: 10
  const std::vector<float> v = decoded(b);
  EXPECT_EQ(v[32], 5.0f * 9 - 3.5f);
  EXPECT_EQ(v[32 * 5 + 31], 44.0f * 10 - 0.5f * 19);
  EXPECT_EQ(v[0], 0.0f);
}

TEST(Decode, Q6_KByHand) {
  BlockQ6_K b{};
  b.d = f32_to_f16(0.25f);
  b.scales[15] = -3;
  b.ql[64 + 32 + 31] = 0x70;  // values 128 + 96 + 31: low bits 7
  b.qh[32 + 31] = 0xc0;       // high bits 3
  EXPECT_EQ(decoded(b)[255], 0.25f * -3 * (7 + 48 - 32));
}

TEST(Decode, IQ2_XXSSignsAreEven) {
  BlockIQ2_XXS b{};
  b.d = f32_to_f16(8.0f);
  b.qs[2] = 0x01;    // of the first 8 values the first is negative, and so the eighth must be
  b.qs[3] = 0x3000;  // scale 3
  const std::vector<float> v = decoded(b);
  const float step = 8.0f * 3.5f * 0.25f;
  EXPECT_EQ(v[0], -8 * step);
  EXPECT_EQ(v[1], 8 * step);
  EXPECT_EQ(v[7], -8 * step);
  EXPECT_EQ(v[8], 8 * step);
}

TEST(Decode, IQ1_MScaleAndShifts) {
  BlockIQ1_M b{};
  const uint16_t d = f32_to_f16(2.0f);
  for (int word = 0; word < 4; ++word)
    b.scales[2 * word + 1] = static_cast<uint8_t>(((d >> (4 * word)) & 15) << 4);
  b.scales[0] = 2;                          // first 16 values: 2 * 2 + 1
  b.qh[0] = 0x80;                           // the second 8 are shifted down
  const std::vector<float> v = decoded(b);  // entry 0 of the codebook: all -1
  EXPECT_EQ(v[0], 10.0f * (-1 + 0.125f));
  EXPECT_EQ(v[8], 10.0f * (-1 - 0.125f));
  EXPECT_EQ(v[16], 2.0f * (-1 + 0.125f));
}

TEST(Decode, MXFP4HasSubnormalScales) {
  BlockMXFP4 b{};
  b.qs[0] = 0xf7;
  for (const int e : {0, 1, 2, 127, 254, 255}) {
    b.e = static_cast<uint8_t>(e);
    const std::vector<float> v = decoded(b);
    EXPECT_EQ(v[0], std::ldexp(12.0f, e - 128)) << e;
    EXPECT_EQ(v[16], std::ldexp(-12.0f, e - 128)) << e;
    EXPECT_EQ(v[1], 0.0f);
  }
}

/// FNV-1a over the levels of all entries, in the order of the format's tables.
template <size_t kEntries, typename Value>
uint64_t checksum(const uint16_t (&codes)[kEntries], int bits_each, int values, Value value) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint16_t code : codes) {
    for (int i = 0; i < values; ++i) {
      hash ^= static_cast<uint8_t>(value((code >> (bits_each * i)) & ((1 << bits_each) - 1)));
      hash *= 0x100000001b3u;
    }
  }
  return hash;
}

// Expected sums were computed from ggml-common.h's expanded tables.
TEST(Codebooks, AreTheFormatsTables) {
  const auto iq2 = [](int code) { return kIq2Levels[code]; };
  EXPECT_EQ(checksum(kIq2XxsCodes, 2, 8, iq2), 0xbb4ee025b5ac6e8eu);
  EXPECT_EQ(checksum(kIq2XsCodes, 2, 8, iq2), 0xc9b1ee61e79909bdu);
  EXPECT_EQ(checksum(kIq2SCodes, 2, 8, iq2), 0x123edd38a3b62b90u);
  EXPECT_EQ(checksum(kIq3XxsCodes, 3, 4, [](int code) { return kIq3XxsLevels[code]; }), 0xdfa5dc83d6a155d5u);
  EXPECT_EQ(checksum(kIq3SCodes, 3, 4, [](int code) { return kIq3SLevels[code]; }), 0xfa37020c25b44829u);
  EXPECT_EQ(checksum(kIq1Codes, 2, 8, [](int code) { return code - 1; }), 0x6703ed863501ae2eu);
}

}  // namespace
}  // namespace redlite::quant
