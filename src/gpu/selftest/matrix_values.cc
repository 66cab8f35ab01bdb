#include "gpu/selftest/matrix_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/decode.h"
#include "quant/random_blocks.h"

namespace redlite::gpu {

using quant::Type;

TestMatrix random_matrix(Type type, int rows, int cols, std::mt19937& random) {
  TestMatrix out;
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

Seen rounded(const std::vector<double>& x, bool exact) {
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

Seen plain(const std::vector<double>& x, bool exact) {
  Seen out{x, {}};
  for (const double value : x) out.slack.push_back(exact ? 0 : std::fabs(value) * 0x1p-20);
  return out;
}
Seen seen_by(Type type, const std::vector<double>& x, bool exact) {
  return takes_floats(type) ? plain(x, exact) : rounded(x, exact);
}

DeviceMatrix upload(Selftest& test, Type type, int rows, int cols, const TestMatrix& matrix) {
  std::vector<std::byte> planes(plane_bytes(type, rows, cols));
  repack(type, rows, cols, matrix.blocks.data(), planes.data());
  return device_matrix(type, rows, cols, test.upload(planes));
}

namespace {

/// Where a strip's 16 integers lie: as activations.h has it.
size_t place(size_t strip) {
  return strip ^ ((strip >> 3) & 3);
}

}  // namespace

std::vector<std::byte> rounded_vector(const std::vector<float>& x) {
  std::vector<std::byte> out(rounded_bytes(static_cast<int>(x.size())));
  const size_t strips = out.size() / 24;
  for (size_t s = 0; s < strips; ++s) {
    float largest = 0;
    const size_t end = std::min(16 * s + 16, x.size());
    for (size_t i = 16 * s; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    const bool zero = largest < 0x1p-100f;
    const float scale = zero ? 0.0f : largest / 127.0f, inverse = zero ? 0.0f : 127.0f / largest;
    int sum = 0;
    for (size_t i = 16 * s; i < end; ++i) {
      const int q = static_cast<int>(std::nearbyint(x[i] * inverse));
      out[16 * place(s) + i % 16] = static_cast<std::byte>(q);
      sum += q;
    }
    const float scaled_sum = scale * static_cast<float>(sum);
    std::memcpy(&out[16 * strips + 4 * s], &scale, 4);
    std::memcpy(&out[20 * strips + 4 * s], &scaled_sum, 4);
  }
  return out;
}

std::vector<double> values_of(std::span<const std::byte> rounded, int n) {
  std::vector<double> out;
  const size_t strips = rounded_bytes(n) / 24;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    float scale;
    std::memcpy(&scale, &rounded[16 * strips + 4 * (i / 16)], 4);
    out.push_back(static_cast<double>(scale) * static_cast<int8_t>(rounded[16 * place(i / 16) + i % 16]));
  }
  return out;
}

void check_rounded(Selftest& test, const std::string& label, const float* values, const std::byte* rounded,
                   int n_rows, int n) {
  const size_t width = static_cast<size_t>(n), bytes = rounded_bytes(n), strips = bytes / 24;
  const std::vector<float> floats = test.download(values, static_cast<size_t>(n_rows) * width);
  const std::vector<std::byte> all = test.download(rounded, static_cast<size_t>(n_rows) * bytes);
  std::vector<float> ours;
  Expected expected;
  for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
    const std::vector<std::byte> right =
        rounded_vector({floats.begin() + static_cast<std::ptrdiff_t>(row * width),
                        floats.begin() + static_cast<std::ptrdiff_t>((row + 1) * width)});
    const std::span<const std::byte> got = std::span(all).subspan(row * bytes, bytes);
    for (const double value : values_of(got, n)) ours.push_back(static_cast<float>(value));
    for (const double value : values_of(right, n)) expected.values.push_back(value);
    for (size_t s = 0; s < (width + 15) / 16; ++s) {
      float sum, right_sum;
      std::memcpy(&sum, &got[20 * strips + 4 * s], 4);
      std::memcpy(&right_sum, &right[20 * strips + 4 * s], 4);
      ours.push_back(sum);
      expected.values.push_back(right_sum);
    }
  }
  for (const double value : expected.values) expected.bounds.push_back(std::fabs(value) * 0x1p-23);
  test.compare(label, ours, expected);
}

Expected product(const TestMatrix& w, int rows, int cols, const Seen& x) {
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

std::vector<MatrixShape> matrix_shapes(Type type) {
  const auto block = static_cast<int>(quant::info(type).block_values);
  std::vector<MatrixShape> out = {{1, 256},   {3, 512},  {33, 512}, {9, 768},
                                  {64, 1024}, {5, 2048}, {2, 4096}, {300, 256}};
  if (block <= 32) {
    for (const int cols : {32, 64, 96, 224, 288, 800}) out.push_back({7, cols});
  }
  if (block == 1) {
    for (const int cols : {1, 2, 7, 15, 100, 129}) out.push_back({5, cols});
  }
  return out;
}

}  // namespace redlite::gpu
