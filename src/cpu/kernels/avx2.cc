// Products with quantised weights for AVX2 (and for AVX-512 without VNNI or VBMI, which would gain little).
// A row is decoded once and multiplied by all tokens.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "cpu/kernels/layout.h"

#if HWY_ARCH_X86_64

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/aligned.h"
#include "base/error.h"
#include "cpu/kernels/grids.h"
#include "quant/blocks.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2")

namespace redlite::cpu::avx2 {
namespace {

#include "cpu/kernels/avx2_decode-inl.h"

using Access = ActivationsAccess;

/// Sixteen lanes' sums.
struct Sums {
  F half[2];
};

/// The lanes' products of one block with one token's activations, added to `sums` in the defined order.
template <typename Decoder>
HWY_INLINE void add_block(const Decoded& block, const ActivationBlock& x, Sums& sums) {
  for (int h = 0; h < 2; ++h) {
    const int lane = 8 * h;
    V dot = _mm256_setzero_si256();
    if constexpr (Decoder::kOffsetBits >= 0) {
      dot = _mm256_slli_epi32(load32(x.negative_sum + lane), Decoder::kOffsetBits);
    }
    for (int j = 0; j < 4; j += Decoder::kSums) {
      V products = _mm256_setzero_si256();
      for (int i = j; i < j + Decoder::kSums; ++i) {
        const V q = load32(x.q[i][lane]), w = block.w[h][i];
        V one;
        if constexpr (Decoder::kUnsigned) {
          one = _mm256_maddubs_epi16(w, q);
        } else {
          one = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
        }
        products = i == j ? one : _mm256_add_epi16(products, one);
      }
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
    }
    const F scaled = _mm256_mul_ps(floats(dot), _mm256_load_ps(x.scale + lane));
    sums.half[h] = _mm256_fmadd_ps(scaled, block.scale[h], sums.half[h]);
    if constexpr (Decoder::kMins) {
      sums.half[h] = _mm256_fnmadd_ps(block.min[h], _mm256_load_ps(x.scaled_sum + lane), sums.half[h]);
    }
  }
}

/// Lanes folded in halves.
HWY_INLINE float fold(const Sums& sums) {
  const F eight = _mm256_add_ps(sums.half[0], sums.half[1]);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// Calls use(decoded, block) for all blocks of 256 values of a row; the last is padded with zeros.
template <typename Decoder, typename Use>
HWY_INLINE void for_blocks(const std::byte* row, int cols, Use use) {
  using Block = typename Decoder::Block;
  constexpr int kParts = kBlockValues / Block::kValues;
  const auto* block = reinterpret_cast<const Block*>(row);
  Decoded decoded;
  int b = 0;
  for (; b < cols / kBlockValues; ++b, block += kParts) {
    Decoder::decode(block, decoded);
    use(decoded, b);
  }
  if constexpr (kParts > 1) {
    const int rest = cols % kBlockValues / Block::kValues;
    if (rest > 0) {
      Block padded[kParts] = {};
      std::memcpy(padded, block, static_cast<size_t>(rest) * sizeof(Block));
      Decoder::decode(padded, decoded);
      use(decoded, b);
    }
  }
}

template <typename Decoder>
void multiply_with(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
                   float* y, size_t y_stride) {
  const int blocks = Access::blocks_in_row(w.cols);
  const size_t row_bytes = w.row_bytes();
  const std::byte* row = w.row(first);
  const ActivationBlock* const activations = Access::blocks(x, t_first);
  const int tokens = t_last - t_first;
  if (tokens == 1) {
    for (int r = first; r < last; ++r, row += row_bytes) {
      Sums sums = {};
      for_blocks<Decoder>(row, w.cols, [&sums, activations](const Decoded& decoded, int b) {
        add_block<Decoder>(decoded, activations[b], sums);
      });
      y[r] = fold(sums);
    }
    return;
  }
  thread_local AlignedBuffer<Decoded> buffer;
  if (buffer.size() < static_cast<size_t>(blocks))
    buffer = AlignedBuffer<Decoded>(static_cast<size_t>(blocks));
  Decoded* const decoded_row = buffer.data();
  for (int r = first; r < last; ++r, row += row_bytes) {
    for_blocks<Decoder>(row, w.cols,
                        [decoded_row](const Decoded& decoded, int b) { decoded_row[b] = decoded; });
    for (int t = 0; t < tokens; ++t) {
      Sums sums = {};
      for (int b = 0; b < blocks; ++b) add_block<Decoder>(decoded_row[b], activations[t * blocks + b], sums);
      y[static_cast<size_t>(t) * y_stride + static_cast<size_t>(r)] = fold(sums);
    }
  }
}

}  // namespace

void multiply(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
              float* y, size_t y_stride) {
  const auto with = [&](auto product) { product(w, first, last, x, t_first, t_last, y, y_stride); };
  using quant::Type;
  switch (w.type) {
    case Type::Q4_0:
      return with(multiply_with<DecodeQ4_0>);
    case Type::Q4_1:
      return with(multiply_with<DecodeQ4_1>);
    case Type::Q5_0:
      return with(multiply_with<DecodeQ5_0>);
    case Type::Q5_1:
      return with(multiply_with<DecodeQ5_1>);
    case Type::Q8_0:
      return with(multiply_with<DecodeQ8_0>);
    case Type::Q2_K:
      return with(multiply_with<DecodeQ2_K>);
    case Type::Q3_K:
      return with(multiply_with<DecodeQ3_K>);
    case Type::Q4_K:
      return with(multiply_with<DecodeQ4_K>);
    case Type::Q5_K:
      return with(multiply_with<DecodeQ5_K>);
    case Type::Q6_K:
      return with(multiply_with<DecodeQ6_K>);
    case Type::IQ2_XXS:
      return with(multiply_with<DecodeIQ2_XXS>);
    case Type::IQ2_XS:
      return with(multiply_with<DecodeIQ2_XS>);
    case Type::IQ2_S:
      return with(multiply_with<DecodeIQ2_S>);
    case Type::IQ3_XXS:
      return with(multiply_with<DecodeIQ3_XXS>);
    case Type::IQ3_S:
      return with(multiply_with<DecodeIQ3_S>);
    case Type::IQ1_S:
      return with(multiply_with<DecodeIQ1_S>);
    case Type::IQ1_M:
      return with(multiply_with<DecodeIQ1_M>);
    case Type::IQ4_NL:
      return with(multiply_with<DecodeIQ4_NL>);
    case Type::IQ4_XS:
      return with(multiply_with<DecodeIQ4_XS>);
    case Type::MXFP4:
      return with(multiply_with<DecodeMXFP4>);
    case Type::F32:
    case Type::F16:
    case Type::BF16:
      break;
  }
  RL_CHECK(false, "{}", quant::name(w.type));
}

}  // namespace redlite::cpu::avx2

HWY_POP_ATTRIBUTES

#endif  // HWY_ARCH_X86_64
