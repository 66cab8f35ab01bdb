#include "cpu/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels/layout.h"
#include "model/router.h"
#include "quant/blocks.h"
#include "quant/decode.h"
#include "quant/random_blocks.h"

namespace redlite::cpu {
namespace {

using model::Matrix;
using quant::Type;

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> out;
  for (const float v : values) out.push_back(std::bit_cast<uint32_t>(v));
  return out;
}

struct OwnedMatrix {
  std::vector<std::byte> bytes;
  Matrix matrix;
};

OwnedMatrix random_matrix(Type type, int rows, int cols, std::mt19937& random) {
  const size_t blocks =
      static_cast<size_t>(rows) * static_cast<size_t>(cols) / quant::info(type).block_values;
  OwnedMatrix out{quant::random_blocks(type, blocks, random), {}};
  out.bytes.resize(out.bytes.size());
  out.matrix = {out.bytes.data(), type, rows, cols};
  return out;
}

std::vector<float> random_values(size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& v : out)
    v = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);  // outliers as in real models
  return out;
}

Activations quantized(const Kernels& kernels, const std::vector<float>& x, int tokens, int cols) {
  Activations out(tokens, cols);
  out.resize(tokens, cols);
  kernels.quantize(x.data(), static_cast<size_t>(cols), 0, tokens, out);
  return out;
}

/// y[token][row]
std::vector<float> product(const Kernels& kernels, const Matrix& w, const Activations& x) {
  std::vector<float> y(static_cast<size_t>(x.n_tokens()) * static_cast<size_t>(w.rows));
  kernels.multiply(w, 0, w.rows, x, 0, x.n_tokens(), y.data(), static_cast<size_t>(w.rows));
  return y;
}

/// The value that the 8-bit products see.
float dequantized(const Activations& x, int token, int i) {
  const ActivationBlock& b = ActivationsAccess::blocks(x, token)[i / kBlockValues];
  const int in_block = i % kBlockValues;
  const int lane = in_block / 16;
  return b.scale[lane] * static_cast<float>(b.q[in_block % 16 / 4][lane][in_block % 4]);
}

/// |scale * q| + |min| of a row's weights: what bounds the rounding of a product.
std::vector<double> magnitudes(const Matrix& w, int row) {
  std::vector<double> out;
  if (quant::is_float(w.type)) {
    std::vector<float> values(static_cast<size_t>(w.cols));
    quant::decode(w.type, w.row(row), values.data(), values.size());
    for (const float v : values) out.push_back(std::fabs(v));
    return out;
  }
  quant::with_block(w.type, [&]<typename Block>() {
    quant::Unpacked<Block::kValues> unpacked;
    for (int at = 0; at < w.cols; at += Block::kValues) {
      Block block;
      std::memcpy(&block, w.row(row) + static_cast<size_t>(at / Block::kValues) * sizeof block, sizeof block);
      quant::unpack(block, unpacked);
      for (int i = 0; i < Block::kValues; ++i) {
        out.push_back(std::fabs(static_cast<double>(unpacked.scale[i / 16]) * unpacked.q[i]) +
                      std::fabs(unpacked.min[i / 16]));
      }
    }
  });
  return out;
}

struct Shape {
  int rows, cols, tokens;
};

std::vector<Shape> shapes(Type type) {
  const int block = static_cast<int>(quant::info(type).block_values);
  std::vector<Shape> out;
  for (int rows = 1; rows <= 9; ++rows) out.push_back({rows, 512, 1});
  for (const int tokens : {2, 3, 4, 5, 7, 8, 33}) out.push_back({5, 256, tokens});
  out.push_back({2, 2048, 2});
  out.push_back({70, 256, 19});
  if (block == 256) {
    out.push_back({3, 768, 3});
  } else {
    for (const int cols : {32, 64, 96, 224, 288, 480, 800}) out.push_back({3, cols, cols % 3 + 1});
  }
  if (block == 1) {
    for (const int cols : {1, 7, 15, 17, 100, 129}) out.push_back({3, cols, cols % 3 + 1});
  }
  return out;
}

class KernelsOfType : public testing::TestWithParam<Type> {};

TEST_P(KernelsOfType, PlainProductIsTheRoundedExactOne) {
  std::mt19937 random(1);
  const Kernels& kernels = *find_kernels("scalar");
  for (const Shape& s : shapes(GetParam())) {
    const OwnedMatrix w = random_matrix(GetParam(), s.rows, s.cols, random);
    const std::vector<float> x =
        random_values(static_cast<size_t>(s.tokens) * static_cast<size_t>(s.cols), random);
    const Activations a = quantized(kernels, x, s.tokens, s.cols);
    const std::vector<float> y = product(kernels, w.matrix, a);
    std::vector<float> row(static_cast<size_t>(s.cols));
    for (int r = 0; r < s.rows; ++r) {
      quant::decode(GetParam(), w.matrix.row(r), row.data(), row.size());
      const std::vector<double> magnitude = magnitudes(w.matrix, r);
      for (int t = 0; t < s.tokens; ++t) {
        double exact = 0, of_true_x = 0, bound = 0, loose = 0;
        for (int i = 0; i < s.cols; ++i) {
          const size_t at = static_cast<size_t>(i);
          const float true_x = x[static_cast<size_t>(t) * row.size() + at];
          const float q = quant::is_float(GetParam()) ? true_x : dequantized(a, t, i);
          const ActivationBlock& block = ActivationsAccess::blocks(a, t)[i / kBlockValues];
          exact += static_cast<double>(row[at]) * q;
          of_true_x += static_cast<double>(row[at]) * true_x;
          bound += magnitude[at] * std::fabs(q);
          loose += std::fabs(row[at]) * block.scale[i % kBlockValues / 16];
        }
        // One rounding for each block and fold step of a lane, and those of the scales.
        const double steps = 2.0 * (s.cols / kBlockValues) + 8;
        const double got = y[static_cast<size_t>(t) * static_cast<size_t>(s.rows) + static_cast<size_t>(r)];
        const double float_steps = quant::is_float(GetParam()) ? s.cols / 16.0 + 5 : steps;
        ASSERT_NEAR(got, exact, bound * 0x1p-24 * float_steps + 1e-30)
            << s.rows << 'x' << s.cols << " row " << r;
        // Each activation is off by half a step of its lane at most.
        ASSERT_NEAR(got, of_true_x, 0.501 * loose + bound * 1e-5) << s.rows << 'x' << s.cols;
      }
    }
  }
}

TEST_P(KernelsOfType, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(2);
  const Kernels& plain = *find_kernels("scalar");
  for (const Shape& s : shapes(GetParam())) {
    const OwnedMatrix w = random_matrix(GetParam(), s.rows, s.cols, random);
    const std::vector<float> x =
        random_values(static_cast<size_t>(s.tokens) * static_cast<size_t>(s.cols), random);
    const Activations a = quantized(plain, x, s.tokens, s.cols);
    const std::vector<uint32_t> expected = bits(product(plain, w.matrix, a));
    for (const std::string_view name : available_kernels()) {
      ASSERT_EQ(bits(product(*find_kernels(name), w.matrix, a)), expected)
          << name << ' ' << s.rows << 'x' << s.cols << " tokens " << s.tokens;
    }
  }
}

TEST_P(KernelsOfType, ExtremeValuesDoNotSaturate) {
  std::mt19937 random(12);
  constexpr int kRows = 3, kCols = 512, kTokens = 5;
  const Kernels& plain = *find_kernels("scalar");
  std::vector<float> x(kTokens * kCols);  // all activations the largest: rounded to 127 or -127
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i < kCols ? 1.0f : (i < 2 * kCols ? -1.0f : (random() & 1 ? 1.0f : -1.0f));
  }
  const Activations a = quantized(plain, x, kTokens, kCols);
  for (const int fill : {0x00, 0xff, 0x7f, 0x80, 0x0f, 0xf0, 0x88}) {
    const size_t blocks = size_t{kRows} * kCols / quant::info(GetParam()).block_values;
    const std::vector<std::byte> bytes = quant::random_blocks(GetParam(), blocks, random, fill);
    const Matrix w{bytes.data(), GetParam(), kRows, kCols};
    const std::vector<uint32_t> expected = bits(product(plain, w, a));
    for (const std::string_view name : available_kernels()) {
      ASSERT_EQ(bits(product(*find_kernels(name), w, a)), expected) << name << " filled with " << fill;
    }
  }
}

TEST_P(KernelsOfType, DividingRowsAndTokensChangesNoBit) {
  std::mt19937 random(3);
  constexpr int kRows = 23, kCols = 512, kTokens = 9;
  const OwnedMatrix w = random_matrix(GetParam(), kRows, kCols, random);
  const std::vector<float> x = random_values(kTokens * kCols, random);
  for (const std::string_view name : available_kernels()) {
    const Kernels& kernels = *find_kernels(name);
    const Activations a = quantized(kernels, x, kTokens, kCols);
    const std::vector<uint32_t> whole = bits(product(kernels, w.matrix, a));
    for (const int row_step : {1, 2, 5, 16}) {
      for (const int token_step : {1, 2, 3, 4, 8}) {
        std::vector<float> y(kTokens * kRows, -1.0f);
        for (int r = 0; r < kRows; r += row_step) {
          for (int t = 0; t < kTokens; t += token_step) {
            kernels.multiply(w.matrix, r, std::min(r + row_step, kRows), a, t,
                             std::min(t + token_step, kTokens), y.data() + t * kRows, kRows);
          }
        }
        ASSERT_EQ(bits(y), whole) << name << " rows by " << row_step << ", tokens by " << token_step;
      }
    }
  }
}

/// Logits [token][expert] by model/router.h.
std::vector<float> expected_logits(const Matrix& w, const std::vector<float>& x, int tokens) {
  std::vector<float> out, row(static_cast<size_t>(w.cols));
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < w.rows; ++r) {
      quant::decode(w.type, w.row(r), row.data(), row.size());
      out.push_back(model::router_logit(row.data(), x.data() + t * w.cols, w.cols));
    }
  }
  return out;
}

void expect_router(Type type, int rows, int cols, int tokens, std::mt19937& random) {
  const OwnedMatrix w = random_matrix(type, rows, cols, random);
  const std::vector<float> x = random_values(static_cast<size_t>(cols) * static_cast<size_t>(tokens), random);
  const std::vector<uint32_t> expected = bits(expected_logits(w.matrix, x, tokens));
  const int middle = rows / 3;
  for (const std::string_view name : available_kernels()) {
    std::vector<float> logits(expected.size());
    for (const auto& [first, last] : {std::pair(0, middle), std::pair(middle, rows)}) {
      find_kernels(name)->router(w.matrix, first, last, x.data(), static_cast<size_t>(cols), tokens,
                                 logits.data(), static_cast<size_t>(rows));
    }
    ASSERT_EQ(bits(logits), expected) << name << ' ' << cols << " tokens " << tokens;
  }
}

TEST_P(KernelsOfType, RouterIsTheDefinedOne) {
  std::mt19937 random(4);
  for (const int cols : {256, 512, 768, 2048}) {
    for (const int tokens : {1, 2, 5, 8}) expect_router(GetParam(), 21, cols, tokens, random);
  }
}

std::vector<Type> types() {
  std::vector<Type> out;
  for (const quant::TypeInfo& t : quant::all_types()) out.push_back(t.type);
  return out;
}

INSTANTIATE_TEST_SUITE_P(AllTypes, KernelsOfType, testing::ValuesIn(types()),
                         [](const auto& p) { return std::string(quant::name(p.param)); });

TEST(Router, OddLengthsFollowTheDefinition) {
  std::mt19937 random(5);
  for (const int cols : {1, 3, 15, 16, 17, 31, 33, 100}) {
    for (const int tokens : {1, 3, 4, 9}) expect_router(Type::F32, 5, cols, tokens, random);
  }
}

TEST(Quantize, RoundsToTheNearestStep) {
  std::mt19937 random(6);
  for (const int cols : {16, 32, 100, 256, 500, 2048}) {
    std::vector<float> x = random_values(static_cast<size_t>(cols) * 3, random);
    std::fill_n(x.begin() + cols, 16, 0.0f);
    std::fill_n(x.begin() + 2 * cols, 16, 1e-35f);
    const Activations expected = quantized(*find_kernels("scalar"), x, 3, cols);
    for (int t = 0; t < 3; ++t) {
      for (int i = 0; i < cols; ++i) {
        const ActivationBlock& b = ActivationsAccess::blocks(expected, t)[i / kBlockValues];
        const float step = b.scale[i % kBlockValues / 16];
        const float value = x[static_cast<size_t>(t * cols + i)];
        ASSERT_NEAR(dequantized(expected, t, i), value, 0.501f * step + 2e-31f)
            << cols << ' ' << t << ' ' << i;
        ASSERT_EQ(ActivationsAccess::values(expected, t)[i], value);
      }
    }
    const size_t blocks = static_cast<size_t>(ActivationsAccess::blocks_in_row(cols)) * 3;
    for (const std::string_view name : available_kernels()) {
      const Activations got = quantized(*find_kernels(name), x, 3, cols);
      ASSERT_EQ(std::memcmp(ActivationsAccess::blocks(got, 0), ActivationsAccess::blocks(expected, 0),
                            blocks * sizeof(ActivationBlock)),
                0)
          << name << ' ' << cols;
      ASSERT_EQ(std::memcmp(ActivationsAccess::values(got, 0), ActivationsAccess::values(expected, 0),
                            3 * ActivationsAccess::padded(cols) * sizeof(float)),
                0)
          << name << ' ' << cols;
    }
  }
}

TEST(Quantize, SumsAndScaledSumsBelongToTheLane) {
  std::mt19937 random(7);
  const std::vector<float> x = random_values(300, random);
  const Activations a = quantized(*find_kernels("scalar"), x, 1, 300);
  for (int b = 0; b < 2; ++b) {
    const ActivationBlock& block = ActivationsAccess::blocks(a, 0)[b];
    for (int lane = 0; lane < kLanes; ++lane) {
      int sum = 0;
      for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 4; ++i) sum += block.q[j][lane][i];
      }
      EXPECT_EQ(block.offset_64[lane], -64 * sum);
      EXPECT_EQ(block.offset_72[lane], -72 * sum);
      EXPECT_EQ(block.scaled_sum[lane], block.scale[lane] * static_cast<float>(sum));
    }
  }
}

TEST(Quantize, AnInfiniteValueIsNotLost) {
  std::vector<float> x(64, 1.0f);
  x[20] = std::numeric_limits<float>::infinity();
  std::mt19937 random(8);
  const OwnedMatrix w = random_matrix(Type::Q8_0, 1, 64, random);
  for (const std::string_view name : available_kernels()) {
    const Kernels& kernels = *find_kernels(name);
    EXPECT_FALSE(std::isfinite(product(kernels, w.matrix, quantized(kernels, x, 1, 64))[0])) << name;
  }
}

TEST(Gather, CopiesRows) {
  std::mt19937 random(9);
  const std::vector<float> x = random_values(5 * 300, random);
  const Activations all = quantized(best_kernels(), x, 5, 300);
  Activations some(4, 512);
  some.resize(3, 300);
  some.gather(all, std::vector<int32_t>{4, 0}, 0);
  some.gather(all, std::vector<int32_t>{2}, 2);
  const OwnedMatrix w = random_matrix(Type::F32, 3, 300, random);
  const std::vector<float> expected = product(best_kernels(), w.matrix, all);
  const std::vector<float> got = product(best_kernels(), w.matrix, some);
  for (size_t t = 0; t < 3; ++t) {
    const size_t from = std::vector<size_t>{4, 0, 2}[t];
    EXPECT_THAT(std::vector<float>(got.begin() + t * 3, got.begin() + t * 3 + 3),
                testing::ElementsAre(expected[from * 3], expected[from * 3 + 1], expected[from * 3 + 2]));
  }
  EXPECT_EQ(std::memcmp(ActivationsAccess::blocks(some, 1), ActivationsAccess::blocks(all, 0),
                        2 * sizeof(ActivationBlock)),
            0);
}

TEST(RmsNorm, IsTheFormulaInEveryInstructionSet) {
  std::mt19937 random(10);
  for (const int n : {1, 5, 16, 33, 128, 2048}) {
    const std::vector<float> x = random_values(static_cast<size_t>(n), random);
    const std::vector<float> weight = random_values(static_cast<size_t>(n), random);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / n + 1e-6);
    std::vector<float> plain(x.size());
    find_kernels("scalar")->rms_norm(x.data(), weight.data(), 1e-6f, n, plain.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(plain[i], x[i] * scale * weight[i],
                  1e-6 * std::fabs(plain[i]) + n * 0x1p-28 * std::fabs(plain[i]));
    }
    for (const std::string_view name : available_kernels()) {
      std::vector<float> y = x;  // in place too
      find_kernels(name)->rms_norm(y.data(), weight.data(), 1e-6f, n, y.data());
      ASSERT_EQ(bits(y), bits(plain)) << name << ' ' << n;
    }
  }
}

TEST(SiluMultiply, IsTheFormulaInEveryInstructionSet) {
  std::vector<float> gate, up;
  std::mt19937 random(11);
  for (float v = -120; v < 120; v += 0.0137f) gate.push_back(v);
  for (const float v : {0.0f, -0.0f, 1e-30f, -1e-30f, -87.5f, 88.7f, 1e30f, -1e30f}) gate.push_back(v);
  up = random_values(gate.size(), random);
  const int n = static_cast<int>(gate.size());
  std::vector<float> plain(gate.size());
  find_kernels("scalar")->silu_multiply(gate.data(), up.data(), n, plain.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    ASSERT_NEAR(plain[i], exact, 4e-7 * std::fabs(exact) + 1e-36) << gate[i];
  }
  for (const std::string_view name : available_kernels()) {
    for (const int count : {1, 3, 8, 17, n}) {
      std::vector<float> y(gate.size(), 0.0f);
      find_kernels(name)->silu_multiply(gate.data(), up.data(), count, y.data());
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(y[static_cast<size_t>(i)]),
                  std::bit_cast<uint32_t>(plain[static_cast<size_t>(i)]))
            << name << ' ' << gate[static_cast<size_t>(i)];
      }
      for (size_t i = static_cast<size_t>(count); i < y.size(); ++i) ASSERT_EQ(y[i], 0.0f) << name;
    }
  }
}

TEST(Names, TheBestIsFirstAndUnknownOnesAreNull) {
  EXPECT_EQ(best_kernels().name, available_kernels().front());
  EXPECT_EQ(find_kernels("mmx"), nullptr);
  EXPECT_EQ(find_kernels("scalar")->name, "scalar");
}

}  // namespace
}  // namespace redlite::cpu
