// Products with quantised weights for AVX2 (and for AVX-512 without VNNI or VBMI, which would gain little).
// With many tokens, decoded rows are kept for all of them in a panel.
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

/// The products of half the lanes of one block with one token's activations, added to `sum` in the defined
/// order.
template <bool kUnsigned, bool kMins, int kOffsetBits, int kSums>
HWY_INLINE F add_half(const Decoded& block, const ActivationBlock& x, int h, F sum) {
  const int lane = 8 * h;
  V dot = _mm256_setzero_si256();
  if constexpr (kOffsetBits > 6) dot = _mm256_slli_epi32(load32(x.offset_64 + lane), kOffsetBits - 6);
  if constexpr (kOffsetBits == 6) dot = load32(x.offset_64 + lane);
  if constexpr (kOffsetBits >= 0 && kOffsetBits < 6) {
    dot = _mm256_srai_epi32(load32(x.offset_64 + lane), 6 - kOffsetBits);
  }
  for (int j = 0; j < 4; j += kSums) {
    V products = _mm256_setzero_si256();
    for (int i = j; i < j + kSums; ++i) {
      const V q = load32(x.q[i][lane]), w = block.w[h][i];
      V one;
      if constexpr (kUnsigned) {
        one = _mm256_maddubs_epi16(w, q);
      } else {
        one = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
      }
      products = i == j ? one : _mm256_add_epi16(products, one);
    }
    dot = _mm256_add_epi32(dot, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
  const F scaled = _mm256_mul_ps(floats(dot), _mm256_load_ps(x.scale + lane));
  sum = _mm256_fmadd_ps(scaled, block.scale[h], sum);
  if constexpr (kMins) sum = _mm256_fnmadd_ps(block.min[h], _mm256_load_ps(x.scaled_sum + lane), sum);
  return sum;
}

/// Lanes folded in halves.
HWY_INLINE float fold(const Sums& sums) {
  const F eight = _mm256_add_ps(sums.half[0], sums.half[1]);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// Asks for the kBytes that lie a fixed distance behind `at`, early for the second-level cache and later for
/// the first.
constexpr size_t kFarPrefetch = 4096, kNearPrefetch = 1024;
template <size_t kBytes>
HWY_INLINE void prefetch(const void* at) {
  const auto* from = static_cast<const char*>(at);
  for (size_t i = 0; i < kBytes; i += 64) {
    _mm_prefetch(from + kFarPrefetch + i, _MM_HINT_T1);
    _mm_prefetch(from + kNearPrefetch + i, _MM_HINT_T0);
  }
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
    prefetch<kParts * sizeof(Block)>(block);
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

/// Two rows of a panel times kTokens <= 2 tokens. `rows` of the two are stored.
template <bool kUnsigned, bool kMins, int kOffsetBits, int kSums, int kTokens>
void multiply_tile(const Decoded* panel, int blocks, const ActivationBlock* x, int rows, float* y,
                   size_t y_stride) {
  Sums sums[2][kTokens];
  for (int h = 0; h < 2; ++h) {
    F half[2][kTokens];
    for (auto& row : half) {
      for (F& sum : row) sum = _mm256_setzero_ps();
    }
    for (int b = 0; b < blocks; ++b) {
      for (int r = 0; r < 2; ++r) {
        for (int t = 0; t < kTokens; ++t) {
          half[r][t] = add_half<kUnsigned, kMins, kOffsetBits, kSums>(panel[r * blocks + b],
                                                                      x[t * blocks + b], h, half[r][t]);
        }
      }
    }
    for (int r = 0; r < 2; ++r) {
      for (int t = 0; t < kTokens; ++t) sums[r][t].half[h] = half[r][t];
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < rows; ++r)
      y[static_cast<size_t>(t) * y_stride + static_cast<size_t>(r)] = fold(sums[r][t]);
  }
}

/// Decoded rows kept at once, in the second-level cache, while the tokens pass by in pairs.
constexpr int kPanelRows = 16;

template <typename Decoder>
void multiply_with(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
                   float* y, size_t y_stride) {
  constexpr bool kUnsigned = Decoder::kUnsigned, kMins = Decoder::kMins;
  constexpr int kOffsetBits = Decoder::kOffsetBits, kSums = Decoder::kSums;
  const int blocks = Access::blocks_in_row(w.cols);
  const ActivationBlock* const activations = Access::blocks(x, t_first);
  const int tokens = t_last - t_first;
  if (tokens == 1) {
    for (int r = first; r < last; ++r) {
      Sums sums = {};
      for_blocks<Decoder>(w.row(r), w.cols, [&sums, activations](const Decoded& decoded, int b) {
        for (int h = 0; h < 2; ++h) {
          sums.half[h] =
              add_half<kUnsigned, kMins, kOffsetBits, kSums>(decoded, activations[b], h, sums.half[h]);
        }
      });
      y[r] = fold(sums);
    }
    return;
  }
  thread_local AlignedBuffer<Decoded> buffer;
  const size_t needed = static_cast<size_t>(kPanelRows) * static_cast<size_t>(blocks);
  if (buffer.size() < needed) buffer = AlignedBuffer<Decoded>(needed);
  Decoded* const panel = buffer.data();
  for (int r0 = first; r0 < last; r0 += kPanelRows) {
    const int rows = std::min(kPanelRows, last - r0);
    for (int r = 0; r < rows; ++r) {
      Decoded* const out = panel + static_cast<ptrdiff_t>(r) * blocks;
      for_blocks<Decoder>(w.row(r0 + r), w.cols, [out](const Decoded& decoded, int b) { out[b] = decoded; });
    }
    for (int t = 0; t < tokens; t += 2) {
      const auto tile = tokens - t >= 2 ? multiply_tile<kUnsigned, kMins, kOffsetBits, kSums, 2>
                                        : multiply_tile<kUnsigned, kMins, kOffsetBits, kSums, 1>;
      for (int r = 0; r < rows; r += 2) {
        tile(panel + static_cast<ptrdiff_t>(r) * blocks, blocks,
             activations + static_cast<ptrdiff_t>(t) * blocks, std::min(2, rows - r),
             y + static_cast<size_t>(t) * y_stride + static_cast<size_t>(r0 + r), y_stride);
      }
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
