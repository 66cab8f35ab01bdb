#pragma once

#include <cstdint>

#include "gpu/kernels/unit_parts.h"

/// Types whose blocks have 32 values: a unit is a block.
namespace redlite::gpu {

namespace detail {

/// Q4_0, Q4_1, IQ4_NL, MXFP4: 16 bytes of nibbles and a scale field of type S.
template <typename S>
struct NibbleUnit {
  static constexpr int kValues = 32;
  U32x4 qs;
  S scales;

  template <typename Planes>
  static RL_DEVICE NibbleUnit read(const Planes& w, uint32_t i) {
    return {load<U32x4>(w, 0, 16ull * i), load_small<S>(w, 1, sizeof(S) * uint64_t{i})};
  }
  RL_DEVICE void nibbles(UnitValues<32>& out, uint32_t offset) const {
    for (int j = 0; j < 4; ++j) {
      out.q[j] = minus(qs.v[j] & 0x0f0f0f0fu, offset);
      out.q[4 + j] = minus((qs.v[j] >> 4) & 0x0f0f0f0fu, offset);
    }
  }
  RL_DEVICE void levels(UnitValues<32>& out, const uint32_t (&table)[4]) const {
    for (int j = 0; j < 4; ++j) look_up_nibbles(qs.v[j], table, out.q[j], out.q[4 + j]);
  }
};

RL_DEVICE inline void set_scales(UnitValues<32>& out, float scale, float min = 0) {
  out.scale[0] = out.scale[1] = scale;
  out.min[0] = out.min[1] = min;
}

}  // namespace detail

template <>
struct Unit<quant::Type::Q4_0> : detail::NibbleUnit<uint16_t> {
  static constexpr int kMinStrips = 0;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::NibbleUnit<uint16_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    nibbles(out, 8);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::Q4_1> : detail::NibbleUnit<uint32_t> {
  static constexpr int kMinStrips = 2;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::NibbleUnit<uint32_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    nibbles(out, 0);
    detail::set_scales(out, simt::half_to_float(static_cast<uint16_t>(scales)),
                       -simt::half_to_float(static_cast<uint16_t>(scales >> 16)));
  }
};

template <>
struct Unit<quant::Type::IQ4_NL> : detail::NibbleUnit<uint16_t> {
  static constexpr int kMinStrips = 0;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::NibbleUnit<uint16_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    const uint32_t table[4] = RL_LEVELS(detail::kIq4Words);
    levels(out, table);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::MXFP4> : detail::NibbleUnit<uint8_t> {
  static constexpr int kMinStrips = 0;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::NibbleUnit<uint8_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    const uint32_t table[4] = RL_LEVELS(detail::kMxfp4Words);
    levels(out, table);
    const uint32_t e = scales;
    // 2^(e - 128): half the scale, because the levels are doubled.
    detail::set_scales(out, simt::float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23));
  }
};

namespace detail {

/// Q5_0 and Q5_1: nibbles, a word of fifth bits, a scale field of type S.
template <typename S>
struct FiveBitUnit {
  static constexpr int kValues = 32;
  U32x4 qs;
  uint32_t qh;
  S scales;

  template <typename Planes>
  static RL_DEVICE FiveBitUnit read(const Planes& w, uint32_t i) {
    return {load<U32x4>(w, 0, 16ull * i), load_small<uint32_t>(w, 1, 4ull * i),
            load_small<S>(w, 2, sizeof(S) * uint64_t{i})};
  }
  RL_DEVICE void values(UnitValues<32>& out, uint32_t offset) const {
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = spread_bits((qh >> (4 * j)) & 15u), high = spread_bits((qh >> (16 + 4 * j)) & 15u);
      out.q[j] = minus((qs.v[j] & 0x0f0f0f0fu) | (low << 4), offset);
      out.q[4 + j] = minus(((qs.v[j] >> 4) & 0x0f0f0f0fu) | (high << 4), offset);
    }
  }
};

}  // namespace detail

template <>
struct Unit<quant::Type::Q5_0> : detail::FiveBitUnit<uint16_t> {
  static constexpr int kMinStrips = 0;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::FiveBitUnit<uint16_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    values(out, 16);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::Q5_1> : detail::FiveBitUnit<uint32_t> {
  static constexpr int kMinStrips = 2;
  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    return {detail::FiveBitUnit<uint32_t>::read(w, i)};
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    values(out, 0);
    detail::set_scales(out, simt::half_to_float(static_cast<uint16_t>(scales)),
                       -simt::half_to_float(static_cast<uint16_t>(scales >> 16)));
  }
};

template <>
struct Unit<quant::Type::Q8_0> {
  static constexpr int kValues = 32;
  static constexpr int kMinStrips = 0;
  detail::U32x4 qs[2];
  uint16_t d;

  template <typename Planes>
  static RL_DEVICE Unit load(const Planes& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.d = detail::load_small<uint16_t>(w, 1, 2ull * i);
    return u;
  }
  template <typename Books>
  RL_DEVICE void unpack(Books, UnitValues<32>& out) const {
    for (int j = 0; j < 8; ++j) out.q[j] = qs[j / 4].v[j % 4];
    detail::set_scales(out, simt::half_to_float(d));
  }
};

}  // namespace redlite::gpu
