#include "synth/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "quant/decode.h"

namespace redlite::synth {
namespace {

class Blocks : public ::testing::TestWithParam<quant::TypeInfo> {};

TEST_P(Blocks, HaveTheDeviationAskedForAndNoMean) {
  const quant::Type type = GetParam().type;
  const BlockWriter writer(type);
  constexpr size_t kValues = 1 << 17;
  std::vector<std::byte> bytes(quant::row_bytes(type, kValues));
  std::vector<float> values(kValues);
  for (const float deviation : {0.002f, 0.03f, 1.0f}) {
    Random random(42);
    writer.write(random, deviation, bytes);
    quant::decode(type, bytes.data(), values.data(), kValues);
    double sum = 0;
    double squares = 0;
    for (const float v : values) {
      ASSERT_TRUE(std::isfinite(v));
      sum += v;
      squares += double{v} * v;
    }
    // Scales in the smallest binary16 numbers, and MXFP4's powers of two, are the least exact.
    EXPECT_NEAR(std::sqrt(squares / kValues) / deviation, 1, 0.03) << deviation;
    EXPECT_NEAR(sum / kValues / deviation, 0, 0.03) << deviation;
  }
}

TEST_P(Blocks, UseTheirCodes) {
  const quant::Type type = GetParam().type;
  const BlockWriter writer(type);
  const size_t values = 256;
  std::vector<std::byte> bytes(quant::row_bytes(type, values));
  std::vector<std::set<uint8_t>> seen(bytes.size());
  Random random(3);
  for (int i = 0; i < 1000; ++i) {
    writer.write(random, 0.02f, bytes);
    for (size_t k = 0; k < bytes.size(); ++k) seen[k].insert(static_cast<uint8_t>(bytes[k]));
  }
  // Bytes of codes take nearly all values; those of scales, exponents and minima fewer.
  size_t rich = 0;
  for (const auto& s : seen) {
    EXPECT_GE(s.size(), 2u);
    rich += s.size() > 200;
  }
  EXPECT_GE(rich * 10, seen.size() * (GetParam().block_bytes < 8 ? 4 : 7));
}

TEST_P(Blocks, RepeatForTheSameSeed) {
  const BlockWriter writer(GetParam().type);
  std::vector<std::byte> a(quant::row_bytes(GetParam().type, 512));
  std::vector<std::byte> b(a.size());
  std::vector<std::byte> c(a.size());
  Random one(part_seed(7, "blk.0.ffn_up_exps.weight", 5));
  Random same(part_seed(7, "blk.0.ffn_up_exps.weight", 5));
  Random other(part_seed(7, "blk.0.ffn_up_exps.weight", 6));
  writer.write(one, 1, a);
  writer.write(same, 1, b);
  writer.write(other, 1, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Blocks,
                         ::testing::ValuesIn(quant::all_types().begin(), quant::all_types().end()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Blocks, NeverUseMinus128InQ8_0) {
  const BlockWriter writer(quant::Type::Q8_0);
  std::vector<std::byte> bytes(34 * 10000);
  Random random(1);
  writer.write(random, 1, bytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (i % 34 >= 2) {
      ASSERT_NE(bytes[i], std::byte{0x80});
    }
}

}  // namespace
}  // namespace redlite::synth
