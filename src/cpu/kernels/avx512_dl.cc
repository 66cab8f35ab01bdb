// Products with quantised weights for AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later). Weights are
// decoded to bytes in registers; with many tokens they are kept for all of them in a panel of rows.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined operands in its own intrinsics for mistakes (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "cpu/kernels/layout.h"

#if HWY_ARCH_X86_64

#include <hwy/targets.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/aligned.h"
#include "cpu/kernels/avx512_dl_tables.h"
#include "quant/blocks.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512vbmi,avx512vnni,gfni")

namespace redlite::cpu::dl {
namespace {

#include "cpu/kernels/avx512_dl_decode-inl.h"
// after it
#include "cpu/kernels/avx512_dl_codebooks-inl.h"

using Access = ActivationsAccess;

/// What a product begins with for weights that are stored with an offset.
template <int kOffsetBits>
HWY_INLINE V start_of(const ActivationBlock& x) {
  if constexpr (kOffsetBits < 0) return _mm512_setzero_si512();
  const V offset = _mm512_load_si512(x.offset_64);
  if constexpr (kOffsetBits > 6) return _mm512_slli_epi32(offset, kOffsetBits - 6);
  return kOffsetBits == 6 ? offset : _mm512_srai_epi32(offset, 6 - kOffsetBits);
}

/// The lanes' products of one block with one token's activations, added to `sum` in the defined order.
template <typename Decoder>
HWY_INLINE F add_block(const Decoded& block, const ActivationBlock& x, F sum) {
  V dot = start_of<Decoder::kOffsetBits>(x);
  for (int j = 0; j < 4; ++j) dot = _mm512_dpbusd_epi32(dot, block.w[j], _mm512_load_si512(x.q[j]));
  const F scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_load_ps(x.scale));
  sum = _mm512_fmadd_ps(scaled, block.scale, sum);
  if constexpr (Decoder::kMins) sum = _mm512_fnmadd_ps(block.min, _mm512_load_ps(x.scaled_sum), sum);
  return sum;
}
/// Eight times the product, and an eighth of the scale: the same bits.
template <typename Decoder>
HWY_INLINE F add_block(const Nibbles& block, const ActivationBlock& x, F sum) {
  V low = _mm512_setzero_si512(), high = _mm512_load_si512(x.offset_72);
  for (int e = 0; e < 2; ++e) {
    low = _mm512_dpbusd_epi32(low, low_nibbles(block.pairs[e]), _mm512_load_si512(x.q[2 * e]));
    high = _mm512_dpbusd_epi32(high, _mm512_and_si512(block.pairs[e], bytes(0xf0)),
                               _mm512_load_si512(x.q[2 * e + 1]));
  }
  const V dot = _mm512_add_epi32(high, _mm512_slli_epi32(low, 4));
  const F scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_load_ps(x.scale));
  return _mm512_fmadd_ps(scaled, block.scale, sum);
}

/// Lanes folded in halves.
HWY_INLINE float fold(F lanes) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// A row's blocks in steps of what the decoder takes at once; the last step is padded with zeros where the
/// row ends within it.
template <typename Decoder>
struct RowLayout {
  using Block = typename Decoder::Block;
  static constexpr int kValues = Decoder::kBlocks * kBlockValues;
  static constexpr size_t kBytes = kValues / Block::kValues * sizeof(Block);
  static constexpr bool kHasTail = kValues > Block::kValues;

  explicit RowLayout(int cols)
      : full_steps(cols / kValues),
        blocks(Access::blocks_in_row(cols)),
        tail_bytes(static_cast<size_t>(cols % kValues) / Block::kValues * sizeof(Block)) {}

  int full_steps;
  int blocks;  ///< of 256 values
  size_t tail_bytes;
};

/// Asks for the kBytes that lie a fixed distance behind `at`, twice: early for the second-level cache, later
/// for the first. The processor's own prefetching does not keep up: blocks take so long to decode that it has
/// few requests under way at once.
constexpr size_t kFarPrefetch = 4096, kNearPrefetch = 1024;
template <size_t kBytes>
HWY_INLINE void prefetch(const void* at) {
  const auto* from = static_cast<const char*>(at);
  for (size_t i = 0; i < kBytes; i += 64) {
    _mm_prefetch(from + kFarPrefetch + i, _MM_HINT_T1);
    _mm_prefetch(from + kNearPrefetch + i, _MM_HINT_T0);
  }
}

/// Calls use(decoded, first block, blocks) for all of a row.
template <typename Decoder, typename Use>
HWY_INLINE void for_blocks(const RowLayout<Decoder>& layout, const std::byte* row, Use use) {
  const Decoder decode;
  Decoded decoded[Decoder::kBlocks];
  for (int step = 0; step < layout.full_steps; ++step, row += layout.kBytes) {
    prefetch<RowLayout<Decoder>::kBytes>(row);
    decode(row, decoded);
    use(decoded, step * Decoder::kBlocks, Decoder::kBlocks);
  }
  if constexpr (RowLayout<Decoder>::kHasTail) {
    if (layout.tail_bytes > 0) {
      alignas(64) std::byte padded[RowLayout<Decoder>::kBytes] = {};
      std::memcpy(padded, row, std::min(layout.tail_bytes, layout.kBytes));
      decode(padded, decoded);
      const int first = layout.full_steps * Decoder::kBlocks;
      use(decoded, first, layout.blocks - first);
    }
  }
}

/// The same for consecutive rows of the codebook types, which follow each other without a gap: calls
/// use(decoded) for all blocks. Entries are looked up kAhead steps before they are used, their indices
/// another step before; scales are read for 8 blocks at once.
template <typename Decoder, typename Result, typename Use>
HWY_INLINE void for_stream(const std::byte* rows, ptrdiff_t blocks, Use use) {
  using Block = typename Decoder::Block;
  constexpr int kAtOnce = Decoder::kBlocks, kAhead = Decoder::kAhead;
  const auto* block = reinterpret_cast<const Block*>(rows);
  const ptrdiff_t last_step = (blocks - 1) / kAtOnce * kAtOnce;
  const Block* const last = block + last_step;
  // Decoders may read a little beyond their blocks, and steps ahead of the last one read anything.
  alignas(64) std::byte tail[kAtOnce * sizeof(Block) + 64] = {};
  std::memcpy(tail, last, static_cast<size_t>(blocks - last_step) * sizeof(Block));
  const auto at = [last, &tail](const Block* b) {
    return b < last ? b : reinterpret_cast<const Block*>(tail);
  };
  static_assert(kAhead == 1 || kAhead == 2);
  const auto look_up = [&](int step) { return Decoder::look_up(Decoder::index(at(block + step * kAtOnce))); };
  typename Decoder::LookedUp now = look_up(0), next = kAhead == 2 ? look_up(1) : now;
  typename Decoder::Index index = Decoder::index(at(block + kAhead * kAtOnce));

  for (; blocks > 0; blocks -= kStreamBlocks) {
    const int n = static_cast<int>(std::min<ptrdiff_t>(kStreamBlocks, blocks));
    alignas(64) float d[2 * kStreamBlocks];
    _mm512_store_ps(d, stream_scales<Decoder>(block, n));
    for (int b = 0; b < n; b += kAtOnce, block += kAtOnce) {
      prefetch<kAtOnce * sizeof(Block)>(block);
      const typename Decoder::LookedUp ahead = Decoder::look_up(index);
      index = Decoder::index(at(block + (kAhead + 1) * kAtOnce));
      Result decoded[kAtOnce];
      Decoder::finish(now, at(block), d + 2 * b, decoded);
      now = kAhead == 2 ? next : ahead;
      next = ahead;
      for (int i = 0; i < std::min(kAtOnce, n - b); ++i) use(decoded[i]);
    }
  }
}

template <typename Decoder>
constexpr bool kIsStream = requires {
  typename Decoder::Few;
};

/// Up to kTokens tokens at once, each block used from the registers that it was decoded to. (Where there are
/// fewer, the last one is computed again and not stored.)
template <typename Decoder, int kTokens>
void multiply_few(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int tokens,
                  float* y, size_t y_stride) {
  const RowLayout<Decoder> layout(w.cols);
  const ActivationBlock* activations[kTokens];
  F sums[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    activations[t] = Access::blocks(x, t_first + std::min(t, tokens - 1));
    sums[t] = _mm512_setzero_ps();
  }
  const auto add = [&](const auto& block, int at) {
    for (int t = 0; t < kTokens; ++t) sums[t] = add_block<Decoder>(block, activations[t][at], sums[t]);
  };
  const auto finish_row = [&](int r) {
    for (int t = 0; t < kTokens; ++t) {
      if (t < tokens) y[static_cast<size_t>(t) * y_stride + static_cast<size_t>(r)] = fold(sums[t]);
      sums[t] = _mm512_setzero_ps();
    }
  };
  if constexpr (kIsStream<Decoder>) {
    using Block = typename Decoder::Few;
    int r = first, at = 0;
    for_stream<Decoder, Block>(w.row(first), static_cast<ptrdiff_t>(last - first) * layout.blocks,
                               [&](const Block& block) {
                                 add(block, at);
                                 if (++at < layout.blocks) return;
                                 finish_row(r++);
                                 at = 0;
                               });
  } else {
    const size_t row_bytes = w.row_bytes();
    const std::byte* row = w.row(first);
    for (int r = first; r < last; ++r, row += row_bytes) {
      for_blocks<Decoder>(layout, row, [&](const Decoded* decoded, int at, int blocks) {
        for (int b = 0; b < blocks; ++b) add(decoded[b], at + b);
      });
      finish_row(r);
    }
  }
}

/// A decoded block in memory.
struct alignas(64) PanelBlock {
  uint8_t w[4][64];
  float scale[kLanes];
  float min[kLanes];
};

template <typename Decoder>
HWY_INLINE void keep(const Decoded& decoded, PanelBlock& out) {
  for (int j = 0; j < 4; ++j) _mm512_store_si512(out.w[j], decoded.w[j]);
  _mm512_store_ps(out.scale, decoded.scale);
  if constexpr (Decoder::kMins) _mm512_store_ps(out.min, decoded.min);
}

/// Eight sums' lanes folded in halves, together: sums k and 4 + k in elements 4 k and 4 k + 1.
HWY_INLINE F fold_8(const F (&sums)[8]) {
  F four[4];
  for (int k = 0; k < 4; ++k) {
    const F a = sums[2 * k], b = sums[2 * k + 1];
    four[k] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  F two[2];
  for (int k = 0; k < 2; ++k) {
    const F a = four[2 * k], b = four[2 * k + 1];
    two[k] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  const F pairs =
      _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x44), _mm512_shuffle_ps(two[0], two[1], 0xee));
  const F folded = _mm512_add_ps(pairs, _mm512_movehdup_ps(pairs));  // in elements 0 and 2 of four
  return _mm512_shuffle_ps(folded, folded, 0x88);
}

/// Tokens whose activations pass by together: they stay in the first-level cache.
constexpr int kTileTokens = 4;

/// Two rows of a panel times up to kTileTokens tokens: each weight and activation register is used several
/// times. `rows` of the two are stored.
template <int kOffsetBits, bool kMins, int kTokens>
void multiply_tile(const PanelBlock* panel, int blocks, const ActivationBlock* x, int rows, float* y,
                   size_t y_stride) {
  F sums[2][4];
  for (auto& row : sums) {
    for (F& sum : row) sum = _mm512_setzero_ps();
  }
  for (int b = 0; b < blocks; ++b) {
    const PanelBlock* const w_blocks[2] = {panel + b, panel + blocks + b};
    V dots[2][kTokens];
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < 2; ++r) dots[r][t] = start_of<kOffsetBits>(x[t * blocks + b]);
    }
    for (int j = 0; j < 4; ++j) {
      const V w[2] = {_mm512_load_si512(w_blocks[0]->w[j]), _mm512_load_si512(w_blocks[1]->w[j])};
      for (int t = 0; t < kTokens; ++t) {
        V q = _mm512_load_si512(x[t * blocks + b].q[j]);
        asm("" : "+v"(q));  // loaded once, not with each use
        for (int r = 0; r < 2; ++r) dots[r][t] = _mm512_dpbusd_epi32(dots[r][t], w[r], q);
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const F x_scale = _mm512_load_ps(x[t * blocks + b].scale);
      for (int r = 0; r < 2; ++r) {
        sums[r][t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dots[r][t]), x_scale),
                                     _mm512_load_ps(w_blocks[r]->scale), sums[r][t]);
        if constexpr (kMins) {
          sums[r][t] = _mm512_fnmadd_ps(_mm512_load_ps(w_blocks[r]->min),
                                        _mm512_load_ps(x[t * blocks + b].scaled_sum), sums[r][t]);
        }
      }
    }
  }
  const F all[8] = {sums[0][0], sums[0][1], sums[0][2], sums[0][3],
                    sums[1][0], sums[1][1], sums[1][2], sums[1][3]};
  alignas(64) float folded[16];
  _mm512_store_ps(folded, fold_8(all));
  for (int t = 0; t < kTokens; ++t) {
    std::memcpy(y + static_cast<size_t>(t) * y_stride, folded + 4 * t,
                static_cast<size_t>(rows) * sizeof(float));
  }
}

using Tile = void (*)(const PanelBlock*, int, const ActivationBlock*, int, float*, size_t);
/// By tokens - 1.
template <int kOffsetBits, bool kMins>
constexpr Tile kTiles[kTileTokens] = {
    multiply_tile<kOffsetBits, kMins, 1>, multiply_tile<kOffsetBits, kMins, 2>,
    multiply_tile<kOffsetBits, kMins, 3>, multiply_tile<kOffsetBits, kMins, 4>};

/// Bytes of decoded rows kept at once: they stay in the second-level cache while the tokens pass by.
constexpr size_t kPanelBytes = 192 << 10;

template <typename Decoder>
void multiply_many(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
                   float* y, size_t y_stride) {
  const RowLayout<Decoder> layout(w.cols);
  const int blocks = layout.blocks;
  const int panel_rows = std::clamp(static_cast<int>(kPanelBytes / sizeof(PanelBlock)) / blocks & ~1, 2, 64);
  thread_local AlignedBuffer<PanelBlock> panel;
  const size_t needed = static_cast<size_t>(panel_rows) * static_cast<size_t>(blocks);
  if (panel.size() < needed) panel = AlignedBuffer<PanelBlock>(needed);
  PanelBlock* const decoded_rows = panel.data();

  for (int r0 = first; r0 < last; r0 += panel_rows) {
    const int rows = std::min(panel_rows, last - r0);
    if constexpr (kIsStream<Decoder>) {
      PanelBlock* out = decoded_rows;
      for_stream<Decoder, Decoded>(w.row(r0), static_cast<ptrdiff_t>(rows) * blocks,
                                   [&out](const Decoded& decoded) { keep<Decoder>(decoded, *out++); });
    } else {
      for (int r = 0; r < rows; ++r) {
        PanelBlock* const out = decoded_rows + static_cast<ptrdiff_t>(r) * blocks;
        for_blocks<Decoder>(layout, w.row(r0 + r), [out](const Decoded* decoded, int at, int n) {
          for (int b = 0; b < n; ++b) keep<Decoder>(decoded[b], out[at + b]);
        });
      }
    }
    for (int t = t_first; t < t_last; t += kTileTokens) {
      const ActivationBlock* const from = Access::blocks(x, t);
      const int tokens = std::min(kTileTokens, t_last - t);
      const Tile tile = kTiles<Decoder::kOffsetBits, Decoder::kMins>[tokens - 1];
      for (int r = 0; r < rows; r += 2) {
        tile(decoded_rows + static_cast<ptrdiff_t>(r) * blocks, blocks, from, std::min(2, rows - r),
             y + static_cast<size_t>(t - t_first) * y_stride + static_cast<size_t>(r0 + r), y_stride);
      }
    }
  }
}

template <typename Decoder>
void multiply_with(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
                   float* y, size_t y_stride) {
  const int tokens = t_last - t_first;
  if (tokens == 1) return multiply_few<Decoder, 1>(w, first, last, x, t_first, 1, y, y_stride);
  if (tokens == 2) return multiply_few<Decoder, 2>(w, first, last, x, t_first, 2, y, y_stride);
  if (tokens <= 4) return multiply_few<Decoder, 4>(w, first, last, x, t_first, tokens, y, y_stride);
  if (tokens <= 8) return multiply_few<Decoder, 8>(w, first, last, x, t_first, tokens, y, y_stride);
  multiply_many<Decoder>(w, first, last, x, t_first, t_last, y, y_stride);
}

using Multiply = void (*)(const model::Matrix&, int, int, const Activations&, int, int, float*, size_t);

Multiply multiply_for(quant::Type type) {
  using quant::Type;
  switch (type) {
    case Type::Q4_0:
      return multiply_with<DecodeQ4_0>;
    case Type::Q4_1:
      return multiply_with<DecodeQ4_1>;
    case Type::Q5_0:
      return multiply_with<DecodeQ5_0>;
    case Type::Q5_1:
      return multiply_with<DecodeQ5_1>;
    case Type::Q8_0:
      return multiply_with<DecodeQ8_0>;
    case Type::Q2_K:
      return multiply_with<DecodeQ2_K>;
    case Type::Q3_K:
      return multiply_with<DecodeQ3_K>;
    case Type::Q4_K:
      return multiply_with<DecodeQ4_K>;
    case Type::Q5_K:
      return multiply_with<DecodeQ5_K>;
    case Type::Q6_K:
      return multiply_with<DecodeQ6_K>;
    case Type::IQ2_XXS:
      return multiply_with<DecodeIQ2_XXS>;
    case Type::IQ2_XS:
      return multiply_with<DecodeIQ2_XS>;
    case Type::IQ2_S:
      return multiply_with<DecodeIQ2_S>;
    case Type::IQ3_XXS:
      return multiply_with<DecodeIQ3_XXS>;
    case Type::IQ3_S:
      return multiply_with<DecodeIQ3_S>;
    case Type::IQ1_S:
      return multiply_with<DecodeIQ1_S>;
    case Type::IQ1_M:
      return multiply_with<DecodeIQ1_M>;
    case Type::IQ4_NL:
      return multiply_with<DecodeIQ4_NL>;
    case Type::IQ4_XS:
      return multiply_with<DecodeIQ4_XS>;
    case Type::MXFP4:
      return multiply_with<DecodeMXFP4>;
    case Type::F32:
    case Type::F16:
    case Type::BF16:
      break;
  }
  return nullptr;
}

void multiply(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
              float* y, size_t y_stride) {
  if (first >= last || t_first >= t_last) return;
  if (const Multiply product = multiply_for(w.type))
    return product(w, first, last, x, t_first, t_last, y, y_stride);
  static const Kernels* const floats = avx512_kernels();  // asking the processor takes microseconds
  floats->multiply(w, first, last, x, t_first, t_last, y, y_stride);
}

}  // namespace
}  // namespace redlite::cpu::dl

HWY_POP_ATTRIBUTES

namespace redlite::cpu {

const Kernels* avx512_dl_kernels() {
  // Highway's AVX3_DL asks for all that this file uses, and more.
  if ((hwy::SupportedTargets() & HWY_AVX3_DL) == 0) return nullptr;
  static const Kernels table = [] {
    Kernels t = *avx512_kernels();
    t.name = "avx512_dl";
    t.multiply = dl::multiply;
    return t;
  }();
  return &table;
}

}  // namespace redlite::cpu

#else

namespace redlite::cpu {
const Kernels* avx512_dl_kernels() {
  return nullptr;
}
}  // namespace redlite::cpu

#endif  // HWY_ARCH_X86_64
