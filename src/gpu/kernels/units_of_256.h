#pragma once

#include <cstdint>

#include "gpu/kernels/unit_parts.h"

/// Types whose blocks have 256 values and no codebook: a unit is a quarter of a block.
namespace redlite::gpu {

template <>
struct Unit<quant::Type::Q2_K> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 1;
  detail::U32x4 qs;
  uint32_t scales;  ///< low nibble of byte g: scale, high nibble: min
  uint32_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<uint32_t>(w, 2, 4ull * (i / 4))};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(static_cast<uint16_t>(d));
    const float min = simt::half_to_float(static_cast<uint16_t>(d >> 16));
    for (int g = 0; g < 4; ++g) {
      for (int j = 0; j < 4; ++j) out.q[4 * g + j] = (qs.v[j] >> (2 * g)) & 0x03030303u;
      out.scale[g] = scale * static_cast<float>((scales >> (8 * g)) & 15u);
      out.min[g] = min * static_cast<float>((scales >> (8 * g + 4)) & 15u);
    }
  }
};

template <>
struct Unit<quant::Type::Q3_K> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs;
  detail::U32x2 third;
  uint32_t scales;  ///< a byte for 16 values, plus 32
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    const uint32_t block = i / 4, l = i % 4;
    const uint32_t low = detail::load_small<uint32_t>(w, 2, 12ull * block + 4 * (l % 2)) >> (4 * (l / 2));
    const uint32_t high = detail::load_small<uint32_t>(w, 2, 12ull * block + 8) >> (2 * l);
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load<detail::U32x2>(w, 1, 8ull * i),
            (low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4),
            detail::load_small<uint16_t>(w, 3, 2ull * block)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int g = 0; g < 4; ++g) {
      for (int j = 0; j < 4; ++j) {
        const uint32_t bit = (third.v[g / 2] >> (4 * (g % 2) + j)) & 0x01010101u;
        out.q[4 * g + j] = detail::minus(((qs.v[j] >> (2 * g)) & 0x03030303u) | (bit << 2), 4);
      }
      out.scale[g] = scale * static_cast<float>(static_cast<int>((scales >> (8 * g)) & 0xffu) - 32);
    }
  }
};

template <>
struct Unit<quant::Type::Q4_K> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 2;
  detail::U32x4 qs[2];
  detail::U32x4 header;
  uint32_t l;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.header = detail::load_small<detail::U32x4>(w, 1, 16ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    for (int j = 0; j < 8; ++j) {
      out.q[j] = qs[j / 4].v[j % 4] & 0x0f0f0f0fu;
      out.q[8 + j] = (qs[j / 4].v[j % 4] >> 4) & 0x0f0f0f0fu;
    }
    detail::k4_scales(header, l, out);
  }
};

template <>
struct Unit<quant::Type::Q5_K> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 2;
  detail::U32x4 qs[2];
  detail::U32x2 fifth;
  detail::U32x4 header;
  uint32_t l;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.fifth = detail::load<detail::U32x2>(w, 1, 8ull * i);
    u.header = detail::load_small<detail::U32x4>(w, 2, 16ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    for (int j = 0; j < 8; ++j) {
      // Bit 4 (v / 16 % 2) + v % 16 / 4 of the word v / 32.
      out.q[j] = (qs[j / 4].v[j % 4] & 0x0f0f0f0fu) | (((fifth.v[0] >> j) & 0x01010101u) << 4);
      out.q[8 + j] = ((qs[j / 4].v[j % 4] >> 4) & 0x0f0f0f0fu) | (((fifth.v[1] >> j) & 0x01010101u) << 4);
    }
    detail::k4_scales(header, l, out);
  }
};

template <>
struct Unit<quant::Type::Q6_K> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 ql[2];
  detail::U32x4 qh;
  uint32_t scales;  ///< a signed byte for 16 values
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.ql[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.qh = detail::load<detail::U32x4>(w, 1, 16ull * i);
    u.scales = detail::load_small<uint32_t>(w, 2, 4ull * i);
    u.d = detail::load_small<uint16_t>(w, 3, 2ull * (i / 4));
    return u;
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int g = 0; g < 4; ++g) {
      for (int j = 0; j < 4; ++j) {
        const uint32_t low = (ql[g % 2].v[j] >> (4 * (g / 2))) & 0x0f0f0f0fu;
        const uint32_t high = (qh.v[j] >> (2 * g)) & 0x03030303u;
        out.q[4 * g + j] = detail::minus(low | (high << 4), 32);
      }
      out.scale[g] = scale * static_cast<float>(static_cast<int8_t>(scales >> (8 * g)));
    }
  }
};

template <>
struct Unit<quant::Type::IQ4_XS> {
  static constexpr int kValues = 64;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs[2];
  detail::U32x2 header;  ///< d, high bits of the scales, low nibbles of the scales
  uint32_t l;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.header = detail::load_small<detail::U32x2>(w, 1, 8ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<64>& out) const {
    const uint32_t table[4] = RL_LEVELS(detail::kIq4Words);
    const float d = simt::half_to_float(static_cast<uint16_t>(header.v[0]));
    for (uint32_t h = 0; h < 2; ++h) {
      for (int j = 0; j < 4; ++j) {
        detail::look_up_nibbles(qs[h].v[j], table, out.q[8 * h + j], out.q[8 * h + 4 + j]);
      }
      const uint32_t low = (header.v[1] >> (8 * l + 4 * h)) & 15u;
      const uint32_t high = (header.v[0] >> (16 + 4 * l + 2 * h)) & 3u;
      out.scale[2 * h] = out.scale[2 * h + 1] =
          d * static_cast<float>(static_cast<int>(low | (high << 4)) - 32);
    }
  }
};

}  // namespace redlite::gpu
