#pragma once

#include <cstdint>

#include "gpu/kernels/unit_parts.h"

/// Types whose values are looked up in a codebook: a unit is a quarter of a block.
namespace redlite::gpu {

template <>
struct Unit<quant::Type::IQ2_XXS> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs;  ///< for 32 values: 4 indices, then 4 sign patterns of 7 bits and a scale of 4
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint16_t>(w, 1, 2ull * (i / 4))};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t index = qs.v[2 * h], signs = qs.v[2 * h + 1];
      for (int e = 0; e < 4; ++e) {
        const uint32_t code = detail::iq2_xxs(books, detail::byte_of(index, e));
        const uint32_t sign = detail::even_signs(books, (signs >> (7 * e)) & 127u);
        detail::put_iq2(code | sign, out.q + 8 * h + 2 * e);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] = scale * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ2_XS> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs;  ///< for 8 values: an index of 9 bits and a sign pattern of 7
  uint16_t scales, d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint16_t>(w, 1, 2ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    for (int e = 0; e < 8; ++e) {
      const uint32_t entry = (qs.v[e / 2] >> (16 * (e % 2))) & 0xffffu;
      detail::put_iq2(detail::iq2_xs(books, entry & 511u) | detail::even_signs(books, entry >> 9),
                      out.q + 2 * e);
    }
    detail::iq2_scales(d, scales, out);
  }
};

template <>
struct Unit<quant::Type::IQ2_S> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x2 qs, signs;
  uint16_t qh, scales, d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    const uint64_t block = i / 4, l = i % 4;
    return {detail::load<detail::U32x2>(w, 0, 64 * block + 8 * l),
            detail::load<detail::U32x2>(w, 0, 64 * block + 32 + 8 * l),
            detail::load_small<uint16_t>(w, 1, 2ull * i), detail::load_small<uint16_t>(w, 2, 2ull * i),
            detail::load_small<uint16_t>(w, 3, 2 * block)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    for (int e = 0; e < 8; ++e) {
      const uint32_t shift = static_cast<uint32_t>(8 * (e % 4));
      const uint32_t index =
          ((qs.v[e / 4] >> shift) & 255u) | (((static_cast<uint32_t>(qh) >> (2 * e)) & 3u) << 8);
      detail::put_iq2(
          detail::iq2_s(books, index) | detail::spread_to_nibbles((signs.v[e / 4] >> shift) & 255u),
          out.q + 2 * e);
    }
    detail::iq2_scales(d, scales, out);
  }
};

template <>
struct Unit<quant::Type::IQ3_XXS> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs;            ///< an index for 4 values
  detail::U32x2 scales_signs;  ///< for 32 values: 4 sign patterns of 7 bits, a scale of 4
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load<detail::U32x2>(w, 1, 8ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    constexpr uint32_t low = detail::pack4(quant::kIq3XxsLevels),
                       high = detail::pack4(quant::kIq3XxsLevels + 4);
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t word = scales_signs.v[h];
      for (int e = 0; e < 8; ++e) {
        const uint32_t index = (qs.v[2 * h + e / 4] >> (8 * (e % 4))) & 255u;
        const uint32_t signs = detail::even_signs((word >> (7 * (e / 2))) & 127u) >> (4 * (e % 2));
        out.q[8 * h + e] =
            detail::with_signs(detail::select_bytes(low, high, detail::iq3_xxs(books, index)), signs & 15u);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] = scale * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ3_S> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs;
  detail::U32x2 signs;
  uint16_t qh, d;
  uint8_t scales;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    const uint64_t block = i / 4, l = i % 4;
    return {detail::load<detail::U32x4>(w, 0, 16ull * i),
            detail::load<detail::U32x2>(w, 1, 40 * block + 8 + 8 * l),
            detail::load_small<uint16_t>(w, 1, 40 * block + 2 * l),
            detail::load_small<uint16_t>(w, 3, 2 * block), detail::load_small<uint8_t>(w, 2, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    constexpr uint32_t low = detail::pack4(quant::kIq3SLevels), high = detail::pack4(quant::kIq3SLevels + 4);
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      for (int e = 0; e < 8; ++e) {
        const uint32_t index = ((qs.v[2 * h + e / 4] >> (8 * (e % 4))) & 255u) |
                               (((static_cast<uint32_t>(qh) >> (8 * h + e)) & 1u) << 8);
        out.q[8 * h + e] = detail::with_signs(detail::select_bytes(low, high, detail::iq3_s(books, index)),
                                              (signs.v[h] >> (4 * e)) & 15u);
      }
      const uint32_t s = (static_cast<uint32_t>(scales) >> (4 * h)) & 15u;
      out.scale[2 * h] = out.scale[2 * h + 1] = scale * static_cast<float>(1 + 2 * s);
    }
  }
};

template <>
struct Unit<quant::Type::IQ1_S> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x2 qs;
  uint32_t qh;  ///< for 32 values, 16 bits: 4 x 3 high bits, a scale of 3, the shift's sign
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x2>(w, 0, 8ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t high = (qh >> (16 * h)) & 0xffffu;
      for (int e = 0; e < 4; ++e) {
        const uint32_t index = detail::byte_of(qs.v[h], e) | (((high >> (3 * e)) & 7u) << 8);
        detail::put_iq1(detail::iq1(books, index), (high >> 15) != 0, out.q + 8 * h + 2 * e);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] =
          scale * static_cast<float>(2 * ((high >> 12) & 7u) + 1) * 0.125f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ1_M> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x2 qs;
  uint32_t qh;           ///< a nibble for 8 values: 3 high bits, the shift's sign
  detail::U32x2 scales;  ///< 4 x 16 bits: 4 scales of 3 bits, a nibble of the block's scale
  uint32_t l;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x2>(w, 0, 8ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<detail::U32x2>(w, 2, 8ull * (i / 4)), i % 4};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books books, UnitValues<64>& out) const {
    const uint32_t half = ((scales.v[0] >> 12) & 0xfu) | ((scales.v[0] >> 24) & 0xf0u) |
                          ((scales.v[1] >> 4) & 0xf00u) | ((scales.v[1] >> 16) & 0xf000u);
    const float d = simt::half_to_float(static_cast<uint16_t>(half));
    const uint32_t word = (l < 2 ? scales.v[0] : scales.v[1]) >> (16 * (l % 2));
    for (int e = 0; e < 8; ++e) {
      const uint32_t nibble = (qh >> (4 * e)) & 15u;
      const uint32_t index = detail::byte_of(qs.v[e / 4], e % 4) | ((nibble & 7u) << 8);
      detail::put_iq1(detail::iq1(books, index), (nibble & 8u) != 0, out.q + 2 * e);
    }
    for (int g = 0; g < 4; ++g) {
      out.scale[g] = d * static_cast<float>(2 * ((word >> (3 * g)) & 7u) + 1) * 0.125f;
    }
  }
};

}  // namespace redlite::gpu
