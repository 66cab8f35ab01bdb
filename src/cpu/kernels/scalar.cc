// The kernels in plain C++, without vector instructions: what runs where nothing better is known, and what
// the vectorised ones are tested against, bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/exp.h"
#include "cpu/kernels/layout.h"
#include "cpu/kernels/unpack.h"
#include "quant/decode.h"

namespace redlite::cpu {
namespace {

using Access = ActivationsAccess;

float fold(const float (&lanes)[kLanes]) {
  float sums[kLanes];
  std::copy_n(lanes, kLanes, sums);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

void quantize_block(const float* x, int values, ActivationBlock& out) {
  for (int lane = 0; lane < kLanes; ++lane) {
    float v[16] = {};
    const int n = std::clamp(values - 16 * lane, 0, 16);
    std::copy_n(x + 16 * std::min(lane, values / 16), n, v);
    float largest = 0;
    for (const float value : v) largest = std::max(largest, std::fabs(value));
    const bool zero = largest < kActivationMin;
    const float scale = zero ? 0 : largest / kActivationMax;
    const float inverse = zero ? 0 : kActivationMax / largest;
    int sum = 0;
    for (int i = 0; i < 16; ++i) {
      const int q = round_to_int(v[i] * inverse);
      out.q[i / 4][lane][i % 4] = static_cast<int8_t>(q);
      sum += out.q[i / 4][lane][i % 4];
    }
    out.offset_64[lane] = -64 * sum;
    out.offset_72[lane] = -72 * sum;
    out.scale[lane] = scale;
    out.scaled_sum[lane] = scale * static_cast<float>(sum);
  }
}

void quantize(const float* x, size_t stride, int first, int last, Activations& out) {
  const int cols = out.cols();
  for (int row = first; row < last; ++row) {
    const float* from = x + static_cast<size_t>(row) * stride;
    float* values = Access::values(out, row);
    std::fill(std::copy_n(from, cols, values), values + Access::padded(cols), 0.0f);
    ActivationBlock* blocks = Access::blocks(out, row);
    for (int at = 0; at < cols; at += kBlockValues) {
      quantize_block(from + at, std::min(kBlockValues, cols - at), blocks[at / kBlockValues]);
    }
  }
}

void add_product(const WeightBlock& w, bool with_mins, const ActivationBlock& x, float (&lanes)[kLanes]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    int dot = 0;
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) dot += w.q[j][lane][i] * x.q[j][lane][i];
    }
    lanes[lane] = std::fmaf(static_cast<float>(dot) * x.scale[lane], w.scale[lane], lanes[lane]);
    if (with_mins) lanes[lane] = std::fmaf(-w.min[lane], x.scaled_sum[lane], lanes[lane]);
  }
}

template <typename Block>
void multiply_blocks(const model::Matrix& w, int first, int last, const Activations& x, int t_first,
                     int t_last, float* y, size_t y_stride) {
  const int n_blocks = Access::blocks_in_row(w.cols);
  std::vector<WeightBlock> row(static_cast<size_t>(n_blocks));
  for (int r = first; r < last; ++r) {
    const std::byte* src = w.row(r);
    for (int b = 0; b < n_blocks; ++b, src += kBlockValues / Block::kValues * sizeof(Block)) {
      unpack_weights<Block>(src, w.cols - kBlockValues * b, row[static_cast<size_t>(b)]);
    }
    for (int t = t_first; t < t_last; ++t) {
      const ActivationBlock* blocks = Access::blocks(x, t);
      float lanes[kLanes] = {};
      for (int b = 0; b < n_blocks; ++b) {
        add_product(row[static_cast<size_t>(b)], quant::has_min(Block::kType), blocks[b], lanes);
      }
      y[static_cast<size_t>(t - t_first) * y_stride + static_cast<size_t>(r)] = fold(lanes);
    }
  }
}

float float_weight(const std::byte* row, quant::Type type, int i) {
  if (type == quant::Type::F32) {
    float value;
    std::memcpy(&value, row + 4 * static_cast<size_t>(i), 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * static_cast<size_t>(i), 2);
  return type == quant::Type::F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

float dot_floats(const std::byte* row, quant::Type type, const float* x, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    lanes[i % kLanes] = std::fmaf(x[i], float_weight(row, type, i), lanes[i % kLanes]);
  }
  return fold(lanes);
}

void multiply(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
              float* y, size_t y_stride) {
  if (quant::is_float(w.type)) {
    for (int r = first; r < last; ++r) {
      for (int t = t_first; t < t_last; ++t) {
        y[static_cast<size_t>(t - t_first) * y_stride + static_cast<size_t>(r)] =
            dot_floats(w.row(r), w.type, Access::values(x, t), w.cols);
      }
    }
    return;
  }
  quant::with_block(w.type, [&]<typename Block>() {
    multiply_blocks<Block>(w, first, last, x, t_first, t_last, y, y_stride);
  });
}

void router(const model::Matrix& w, int first, int last, const float* x, size_t x_stride, int n_tokens,
            float* logits, size_t logits_stride) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int r = first; r < last; ++r) {
    quant::decode(w.type, w.row(r), row.data(), row.size());
    for (int t = 0; t < n_tokens; ++t) {
      const size_t token = static_cast<size_t>(t);
      logits[token * logits_stride + static_cast<size_t>(r)] = dot_floats(
          reinterpret_cast<const std::byte*>(row.data()), quant::Type::F32, x + token * x_stride, w.cols);
    }
  }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float squares = dot_floats(reinterpret_cast<const std::byte*>(x), quant::Type::F32, x, n);
  const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void silu_multiply(const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kTable = {"scalar", quantize, multiply, router, rms_norm, silu_multiply};
  return kTable;
}

}  // namespace redlite::cpu
