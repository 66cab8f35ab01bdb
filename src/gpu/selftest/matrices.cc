#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/matrix.h"
#include "gpu/selftest/selftest.h"
#include "quant/blocks.h"
#include "quant/decode.h"
#include "quant/random_blocks.h"

namespace redlite::gpu {
namespace {

using quant::Type;

/// A random matrix with its values, and what bounds their rounding.
struct Matrix {
  std::vector<std::byte> blocks;
  std::vector<float> values;       ///< [rows][cols]
  std::vector<double> magnitudes;  ///< |scale * q| + |min|
};

Matrix random_matrix(Type type, int rows, int cols, std::mt19937& random) {
  Matrix out;
  const auto n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  out.blocks = quant::random_blocks(type, n / quant::info(type).block_values, random);
  out.values.resize(n);
  quant::decode(type, out.blocks.data(), out.values.data(), n);
  for (const float value : out.values) out.magnitudes.push_back(std::fabs(value));
  if (!quant::is_float(type)) {
    quant::with_block(type, [&]<typename Block>() {
      quant::Unpacked<Block::kValues> unpacked;
      for (size_t at = 0; at < n; at += Block::kValues) {
        Block block;
        std::memcpy(&block, &out.blocks[at / Block::kValues * sizeof block], sizeof block);
        quant::unpack(block, unpacked);
        for (size_t i = 0; i < Block::kValues; ++i) {
          out.magnitudes[at + i] = std::fabs(static_cast<double>(unpacked.scale[i / 16]) * unpacked.q[i]) +
                                   std::fabs(unpacked.min[i / 16]);
        }
      }
    });
  }
  return out;
}

/// x as a product sees it, and how far off each value may be because of roundings before that.
struct Seen {
  std::vector<double> values, slack;
};

/// Rounded to 8 bits as activations.h defines; `exact`: x has the very bits that the kernel rounds.
Seen quantized(const std::vector<double>& x, bool exact) {
  Seen out{std::vector<double>(x.size()), std::vector<double>(x.size())};
  for (size_t first = 0; first < x.size(); first += 16) {
    const size_t n = std::min<size_t>(16, x.size() - first);
    float largest = 0;
    for (size_t i = first; i < first + n; ++i)
      largest = std::max(largest, std::fabs(static_cast<float>(x[i])));
    if (largest < 0x1p-100f) continue;
    const float scale = largest / 127.0f, inverse = 127.0f / largest;
    for (size_t i = first; i < first + n; ++i) {
      const float steps = static_cast<float>(x[i]) * inverse;
      const float q = std::nearbyint(steps);
      out.values[i] = static_cast<double>(scale) * q;
      // A value close to the middle between two steps may have gone either way.
      const bool either = !exact && std::fabs(std::fabs(steps - q) - 0.5f) < 1e-3f;
      out.slack[i] = exact ? 0 : std::fabs(out.values[i]) * 0x1p-20 + (either ? scale : 0.0f);
    }
  }
  return out;
}

Expected product(const Matrix& w, int rows, int cols, const Seen& x) {
  Expected out;
  for (int r = 0; r < rows; ++r) {
    double sum = 0, magnitude = 0, slack = 0;
    for (int i = 0; i < cols; ++i) {
      const size_t at = static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(i);
      sum += static_cast<double>(w.values[at]) * x.values[static_cast<size_t>(i)];
      magnitude += w.magnitudes[at] * std::fabs(x.values[static_cast<size_t>(i)]);
      slack += w.magnitudes[at] * x.slack[static_cast<size_t>(i)];
    }
    out.values.push_back(sum);
    // Every addition rounds; the longest chain is a thread's share of a row, then five steps of the warp.
    out.bounds.push_back(slack + magnitude * 0x1p-26 * (cols / 32.0 + 16) + 1e-30);
  }
  return out;
}

struct Shape2 {
  int rows, cols;
};

std::vector<Shape2> shapes(Type type) {
  const auto block = static_cast<int>(quant::info(type).block_values);
  std::vector<Shape2> out = {{1, 256},   {3, 512},  {33, 512}, {9, 768},
                             {64, 1024}, {5, 2048}, {2, 4096}, {300, 256}};
  if (block <= 32) {
    for (const int cols : {32, 64, 96, 224, 288, 800}) out.push_back({7, cols});
  }
  if (block == 1) {
    for (const int cols : {1, 2, 7, 15, 100, 129}) out.push_back({5, cols});
  }
  return out;
}

void test_matvec(Selftest& test, Type type) {
  for (const Shape2 shape : shapes(type)) {
    const Matrix w = random_matrix(type, shape.rows, shape.cols, test.random());
    std::vector<std::byte> planes(plane_bytes(type, shape.rows, shape.cols));
    repack(type, shape.rows, shape.cols, w.blocks.data(), planes.data());
    const PlaneMatrix matrix = plane_matrix(type, shape.rows, shape.cols, test.upload(planes));
    const auto n = static_cast<size_t>(shape.cols);
    std::vector<float> x = test.normal(n);
    if (n >= 64) std::fill_n(x.begin() + 16, 16, 0.0f);  // a strip of zeros
    std::vector<float> norm = test.normal(n);
    const float* x_device = test.upload(x);
    const float* norm_device = test.upload(norm);

    for (const bool with_norm : {false, true}) {
      const float eps = 1e-6f;
      double scale = 1;
      if (with_norm) {
        double sum = 0;
        for (const float value : x) sum += static_cast<double>(value) * value;
        scale = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
      }
      std::vector<double> input;
      for (size_t i = 0; i < n; ++i) input.push_back(with_norm ? x[i] * scale * norm[i] : x[i]);
      Seen seen = quant::is_float(type) ? Seen{input, {}} : quantized(input, !with_norm);
      if (quant::is_float(type)) {
        for (const double value : input) seen.slack.push_back(with_norm ? std::fabs(value) * 0x1p-20 : 0);
      }
      auto* y = test.output<float>(static_cast<size_t>(shape.rows));
      matvec(
          test.stream(), test.device().info(), type, matrix,
          {.x = x_device, .norm = with_norm ? norm_device : nullptr, .eps = eps, .books = test.codebooks()},
          y);
      test.check(fmt::format("{} x {}{}", shape.rows, shape.cols, with_norm ? ", normalised" : ""), y,
                 product(w, shape.rows, shape.cols, seen));
    }
  }
  // The early-out: nothing is written.
  const Matrix w = random_matrix(type, 8, 256, test.random());
  const PlaneMatrix matrix = plane_matrix(type, 8, 256, test.upload(w.blocks));
  auto* y = test.output<float>(8);
  matvec(test.stream(), test.device().info(), type, matrix,
         {.x = test.upload(test.normal(256)),
          .books = test.codebooks(),
          .skip = test.upload(std::vector<uint32_t>{1})},
         y);
  test.check_bytes("skipped", y, std::vector<std::byte>(32, std::byte{0xff}));
}

void test_repack(Selftest& test, Type type) {
  for (const Shape2 shape : shapes(type)) {
    const Matrix w = random_matrix(type, shape.rows, shape.cols, test.random());
    std::vector<std::byte> expected(plane_bytes(type, shape.rows, shape.cols));
    repack(type, shape.rows, shape.cols, w.blocks.data(), expected.data());
    for (const size_t shift : {size_t{0}, size_t{2}}) {  // source aligned or not
      std::vector<std::byte> shifted(shift);
      shifted.insert(shifted.end(), w.blocks.begin(), w.blocks.end());
      const std::byte* from = test.upload(shifted) + shift;
      auto* to = test.output<std::byte>(expected.size());
      repack(test.stream(), test.device().info(), type, shape.rows, shape.cols, from, to);
      test.check_bytes(fmt::format("{} x {}, {} bytes off", shape.rows, shape.cols, shift), to, expected);
    }
  }
}

}  // namespace

void add_matrix_groups(SelftestGroups& groups) {
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("repack {}", info.name),
                        [type = info.type](Selftest& test) { test_repack(test, type); });
  }
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("matvec {}", info.name),
                        [type = info.type](Selftest& test) { test_matvec(test, type); });
  }
}

}  // namespace redlite::gpu
