#include "quant/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/decode.h"
#include "quant/random_blocks.h"

namespace redlite::quant {
namespace {

/// By the definition: all values decode to numbers.
std::optional<size_t> first_by_decoding(const TypeInfo& type, std::span<const std::byte> blocks) {
  std::vector<float> values(type.block_values);
  for (size_t i = 0; i < blocks.size() / type.block_bytes; ++i) {
    decode(type.type, blocks.data() + i * type.block_bytes, values.data(), values.size());
    for (const float v : values)
      if (!std::isfinite(v)) return i;
  }
  return std::nullopt;
}

TEST(Finite, FindsTheFirstBlockThatDecodesToNoNumber) {
  std::mt19937 random(7);
  for (const TypeInfo& type : all_types()) {
    std::vector<std::byte> blocks = random_blocks(type.type, 20, random);
    EXPECT_EQ(first_not_finite(type.type, blocks), std::nullopt) << type.name;
    // Any byte may be hit: what is reported must be what decoding finds. (Infinite scales times zero values
    // may decode to numbers in a block of F16 scales that is damaged all the same.)
    int found = 0;
    for (size_t at = 0; at < 10 * type.block_bytes; ++at) {
      std::vector<std::byte> damaged = blocks;
      damaged[at] = std::byte{0xff};
      if (at + 1 < damaged.size()) damaged[at + 1] = std::byte{0xff};
      const auto expected = first_by_decoding(type, damaged), actual = first_not_finite(type.type, damaged);
      if (expected) {
        ++found;
        EXPECT_EQ(actual, expected) << type.name << " byte " << at;
      }
    }
    EXPECT_GT(found, 0) << type.name;
  }
}

}  // namespace
}  // namespace redlite::quant
