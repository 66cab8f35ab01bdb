#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "gpu/codebooks.h"
#include "gpu/planes.h"
#include "gpu/simt.h"
#include "quant/codebooks.h"
#include "quant/type.h"

/// Units of quantised weights in registers. For each type
///     struct Unit<T> {
///       static constexpr int kValues;       // 64 or 32
///       static constexpr bool kHasMin;
///       static Unit load(const PlaneMatrix& w, uint32_t i);       // unit i of the matrix: loads only
///       void unpack(const Codebooks* books, UnitValues<kValues>& out) const;   // arithmetic only
///     };
/// quant/blocks.h says what the bits mean, planes.h how they lie. Value v of a unit is
/// scale[v / 16] * q[v] - min[v / 16], where every product is exact in binary32.
namespace redlite::gpu {

template <int N>
struct UnitValues {
  static constexpr int kStrips = N / 16;
  uint32_t q[N / 4];  ///< signed bytes; value v in byte v % 4 of q[v / 4]
  float scale[kStrips];
  float min[kStrips];  ///< unset where the type has none
};

template <quant::Type T>
struct Unit;

/// Copies those that `type` needs to `memory` (sizeof(Codebooks), shared), with all threads of the block; a
/// sync_block() comes before they are used. Look-ups through L1 were what the products waited for: it serves
/// few lines at a time, shared memory 32 words.
RL_DEVICE inline const Codebooks* stage_codebooks(quant::Type type, const Codebooks* from,
                                                  std::byte* memory) {
  using quant::Type;
  if (!has_codebook(type)) return from;
  auto* to = reinterpret_cast<Codebooks*>(memory);
  const auto copy = [](auto& target, const auto& source) {
    for (uint32_t i = static_cast<uint32_t>(simt::thread_index()); i < sizeof(target) / 16;
         i += static_cast<uint32_t>(simt::block_threads())) {
      reinterpret_cast<simt::U32x4*>(&target)[i] =
          simt::load_cached(reinterpret_cast<const simt::U32x4*>(&source) + i);
    }
  };
  if (type == Type::IQ2_XXS) copy(to->iq2_xxs, from->iq2_xxs);
  if (type == Type::IQ2_XS) copy(to->iq2_xs, from->iq2_xs);
  if (type == Type::IQ2_XXS || type == Type::IQ2_XS) copy(to->even_signs, from->even_signs);
  if (type == Type::IQ2_S) copy(to->iq2_s, from->iq2_s);
  if (type == Type::IQ3_XXS) copy(to->iq3_xxs, from->iq3_xxs);
  if (type == Type::IQ3_S) copy(to->iq3_s, from->iq3_s);
  if (type == Type::IQ1_S || type == Type::IQ1_M) copy(to->iq1, from->iq1);
  return to;
}

namespace detail {

using simt::permute_bytes;
using simt::U32x2;
using simt::U32x4;

template <typename T>
RL_DEVICE inline T load(const PlaneMatrix& w, int plane, uint64_t byte) {
  return simt::load_once(reinterpret_cast<const T*>(w.data + w.plane[plane] + byte));
}
/// Fields of a few bytes, which neighbouring threads read together: through the cache.
template <typename T>
RL_DEVICE inline T load_small(const PlaneMatrix& w, int plane, uint64_t byte) {
  return simt::load_cached(reinterpret_cast<const T*>(w.data + w.plane[plane] + byte));
}

/// Bytes below 128, each less k (at most 128).
RL_DEVICE inline uint32_t minus(uint32_t bytes, uint32_t k) {
  return ((bytes | 0x80808080u) - k * 0x01010101u) ^ 0x80808080u;
}
/// Bits 0 to 3 as the lowest bits of four bytes.
RL_DEVICE inline uint32_t spread_bits(uint32_t four_bits) {
  return (four_bits * 0x00204081u) & 0x01010101u;
}
/// Bits 0 to 7 as bit 2 of eight nibbles.
RL_DEVICE inline uint32_t spread_to_nibbles(uint32_t eight_bits) {
  uint32_t x = (eight_bits | (eight_bits << 12)) & 0x000f000fu;
  x = (x | (x << 6)) & 0x03030303u;
  return ((x | (x << 3)) & 0x11111111u) << 2;
}
/// Negates the bytes (not zero) whose sign bit is set.
RL_DEVICE inline uint32_t with_signs(uint32_t bytes, uint32_t four_signs) {
  const uint32_t ones = spread_bits(four_signs);
  return (bytes ^ (ones * 0xffu)) + ones;
}
/// The eighth bit that makes the number of ones even.
RL_DEVICE inline uint32_t even_signs(uint32_t seven_bits) {
  return seven_bits | ((static_cast<uint32_t>(simt::count_bits(seven_bits)) & 1u) << 7);
}

template <typename Level>
constexpr uint32_t pack4(const Level* levels, int sign = 1) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    word |= static_cast<uint32_t>(static_cast<uint8_t>(sign * levels[i])) << (8 * i);
  return word;
}

/// Sixteen levels looked up by the four nibbles of `codes`' low half.
RL_DEVICE inline uint32_t look_up16(uint32_t codes, const uint32_t (&levels)[4]) {
  const uint32_t low = permute_bytes(levels[0], levels[1], codes & 0x7777u);
  const uint32_t high = permute_bytes(levels[2], levels[3], codes & 0x7777u);
  return permute_bytes(low, high, 0x3210u | ((codes & 0x8888u) >> 1));
}
/// The levels for the low nibbles of four bytes, and for the high ones.
RL_DEVICE inline void look_up_nibbles(uint32_t bytes, const uint32_t (&levels)[4], uint32_t& low,
                                      uint32_t& high) {
  const uint32_t first = look_up16(bytes & 0xffffu, levels);
  const uint32_t second = look_up16(bytes >> 16, levels);
  low = permute_bytes(first, second, 0x6420u);
  high = permute_bytes(first, second, 0x7531u);
}

/// Scale and min of the 32-value groups 2 l and 2 l + 1 of a Q4_K or Q5_K block, whose header is {d, dmin, 12
/// bytes of scales}.
template <int N>
RL_DEVICE inline void k4_scales(const U32x4& header, uint32_t l, UnitValues<N>& out) {
  const float d = simt::half_to_float(static_cast<uint16_t>(header.v[0]));
  const float dmin = simt::half_to_float(static_cast<uint16_t>(header.v[0] >> 16));
  uint32_t scales, mins;
  if (l < 2) {
    scales = (header.v[1] >> (16 * l)) & 0x3f3fu;
    mins = (header.v[2] >> (16 * l)) & 0x3f3fu;
  } else {
    const uint32_t s = 16 * (l - 2);
    scales = ((header.v[3] >> s) & 0x0f0fu) | (((header.v[1] >> s) >> 2) & 0x3030u);
    mins = (((header.v[3] >> s) >> 4) & 0x0f0fu) | (((header.v[2] >> s) >> 2) & 0x3030u);
  }
  out.scale[0] = out.scale[1] = d * static_cast<float>(scales & 0xffu);
  out.scale[2] = out.scale[3] = d * static_cast<float>(scales >> 8);
  out.min[0] = out.min[1] = dmin * static_cast<float>(mins & 0xffu);
  out.min[2] = out.min[3] = dmin * static_cast<float>(mins >> 8);
}

/// d * (0.5 + nibble) * 0.25 for the four groups of 16 of an IQ2_XS or IQ2_S unit.
template <int N>
RL_DEVICE inline void iq2_scales(uint16_t half, uint32_t nibbles, UnitValues<N>& out) {
  const float d = simt::half_to_float(half);
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = d * (0.5f + static_cast<float>((nibbles >> (4 * g)) & 15u)) * 0.25f;
  }
}

inline constexpr uint32_t kIq2Positive = pack4(quant::kIq2Levels),
                          kIq2Negative = pack4(quant::kIq2Levels, -1);

/// Eight values from nibbles {level, 4 if negative}.
RL_DEVICE inline void put_iq2(uint32_t nibbles, uint32_t* q) {
  q[0] = permute_bytes(kIq2Positive, kIq2Negative, nibbles & 0xffffu);
  q[1] = permute_bytes(kIq2Positive, kIq2Negative, nibbles >> 16);
}

/// Eight values 8 c + 1 or 8 c - 1, c in {-1, 0, 1}.
RL_DEVICE inline void put_iq1(uint32_t nibbles, bool negative_shift, uint32_t* q) {
  const uint32_t levels = negative_shift ? 0x0007fff7u : 0x000901f9u;
  q[0] = permute_bytes(levels, 0, nibbles & 0xffffu);
  q[1] = permute_bytes(levels, 0, nibbles >> 16);
}

inline constexpr uint32_t kMxfp4Words[4] = {pack4(quant::kMxfp4Levels), pack4(quant::kMxfp4Levels + 4),
                                            pack4(quant::kMxfp4Levels + 8), pack4(quant::kMxfp4Levels + 12)};
inline constexpr uint32_t kIq4Words[4] = {pack4(quant::kIq4Levels), pack4(quant::kIq4Levels + 4),
                                          pack4(quant::kIq4Levels + 8), pack4(quant::kIq4Levels + 12)};

/// A copy that lives in registers or as immediates.
#define RL_LEVELS(name) \
  { (name)[0], (name)[1], (name)[2], (name)[3] }

}  // namespace detail

// ---- blocks of 32 ----

namespace detail {

/// Q4_0, Q4_1, IQ4_NL, MXFP4: 16 bytes of nibbles and a scale field of type S.
template <typename S>
struct NibbleUnit {
  static constexpr int kValues = 32;
  U32x4 qs;
  S scales;

  RL_DEVICE void read(const PlaneMatrix& w, uint32_t i) {
    qs = load<U32x4>(w, 0, 16ull * i);
    scales = load_small<S>(w, 1, sizeof(S) * uint64_t{i});
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
  static constexpr bool kHasMin = false;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    nibbles(out, 8);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::Q4_1> : detail::NibbleUnit<uint32_t> {
  static constexpr bool kHasMin = true;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    nibbles(out, 0);
    detail::set_scales(out, simt::half_to_float(static_cast<uint16_t>(scales)),
                       -simt::half_to_float(static_cast<uint16_t>(scales >> 16)));
  }
};

template <>
struct Unit<quant::Type::IQ4_NL> : detail::NibbleUnit<uint16_t> {
  static constexpr bool kHasMin = false;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    const uint32_t table[4] = RL_LEVELS(detail::kIq4Words);
    levels(out, table);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::MXFP4> : detail::NibbleUnit<uint8_t> {
  static constexpr bool kHasMin = false;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
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

  RL_DEVICE void read(const PlaneMatrix& w, uint32_t i) {
    qs = load<U32x4>(w, 0, 16ull * i);
    qh = load_small<uint32_t>(w, 1, 4ull * i);
    scales = load_small<S>(w, 2, sizeof(S) * uint64_t{i});
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
  static constexpr bool kHasMin = false;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    values(out, 16);
    detail::set_scales(out, simt::half_to_float(scales));
  }
};

template <>
struct Unit<quant::Type::Q5_1> : detail::FiveBitUnit<uint32_t> {
  static constexpr bool kHasMin = true;
  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    u.read(w, i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    values(out, 0);
    detail::set_scales(out, simt::half_to_float(static_cast<uint16_t>(scales)),
                       -simt::half_to_float(static_cast<uint16_t>(scales >> 16)));
  }
};

template <>
struct Unit<quant::Type::Q8_0> {
  static constexpr int kValues = 32;
  static constexpr bool kHasMin = false;
  detail::U32x4 qs[2];
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.d = detail::load_small<uint16_t>(w, 1, 2ull * i);
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<32>& out) const {
    for (int j = 0; j < 8; ++j) out.q[j] = qs[j / 4].v[j % 4];
    detail::set_scales(out, simt::half_to_float(d));
  }
};

// ---- blocks of 256, in four units ----

template <>
struct Unit<quant::Type::Q2_K> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = true;
  detail::U32x4 qs;
  uint32_t scales;  ///< low nibble of byte g: scale, high nibble: min
  uint32_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<uint32_t>(w, 2, 4ull * (i / 4))};
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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
  static constexpr bool kHasMin = false;
  detail::U32x4 qs;
  detail::U32x2 third;
  uint32_t scales;  ///< a byte for 16 values, plus 32
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    const uint32_t block = i / 4, l = i % 4;
    const uint32_t low = detail::load_small<uint32_t>(w, 2, 12ull * block + 4 * (l % 2)) >> (4 * (l / 2));
    const uint32_t high = detail::load_small<uint32_t>(w, 2, 12ull * block + 8) >> (2 * l);
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load<detail::U32x2>(w, 1, 8ull * i),
            (low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4),
            detail::load_small<uint16_t>(w, 3, 2ull * block)};
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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
  static constexpr bool kHasMin = true;
  detail::U32x4 qs[2];
  detail::U32x4 header;
  uint32_t l;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.header = detail::load_small<detail::U32x4>(w, 1, 16ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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
  static constexpr bool kHasMin = true;
  detail::U32x4 qs[2];
  detail::U32x2 fifth;
  detail::U32x4 header;
  uint32_t l;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.fifth = detail::load<detail::U32x2>(w, 1, 8ull * i);
    u.header = detail::load_small<detail::U32x4>(w, 2, 16ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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
  static constexpr bool kHasMin = false;
  detail::U32x4 ql[2];
  detail::U32x4 qh;
  uint32_t scales;  ///< a signed byte for 16 values
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.ql[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.qh = detail::load<detail::U32x4>(w, 1, 16ull * i);
    u.scales = detail::load_small<uint32_t>(w, 2, 4ull * i);
    u.d = detail::load_small<uint16_t>(w, 3, 2ull * (i / 4));
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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
  static constexpr bool kHasMin = false;
  detail::U32x4 qs[2];
  detail::U32x2 header;  ///< d, high bits of the scales, low nibbles of the scales
  uint32_t l;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    Unit u;
    for (int j = 0; j < 2; ++j) u.qs[j] = detail::load<detail::U32x4>(w, 0, 32ull * i + 16ull * j);
    u.header = detail::load_small<detail::U32x2>(w, 1, 8ull * (i / 4));
    u.l = i % 4;
    return u;
  }
  RL_DEVICE void unpack(const Codebooks*, UnitValues<64>& out) const {
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

// ---- codebooks ----

template <>
struct Unit<quant::Type::IQ2_XXS> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x4 qs;  ///< for 32 values: 4 indices, then 4 sign patterns of 7 bits and a scale of 4
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint16_t>(w, 1, 2ull * (i / 4))};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t index = qs.v[2 * h], signs = qs.v[2 * h + 1];
      for (int e = 0; e < 4; ++e) {
        const uint32_t code = books->iq2_xxs[(index >> (8 * e)) & 255u];
        const uint32_t sign = books->even_signs[(signs >> (7 * e)) & 127u];
        detail::put_iq2(code | sign, out.q + 8 * h + 2 * e);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] = scale * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ2_XS> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x4 qs;  ///< for 8 values: an index of 9 bits and a sign pattern of 7
  uint16_t scales, d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load_small<uint16_t>(w, 1, 2ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    for (int e = 0; e < 8; ++e) {
      const uint32_t entry = (qs.v[e / 2] >> (16 * (e % 2))) & 0xffffu;
      detail::put_iq2(books->iq2_xs[entry & 511u] | books->even_signs[entry >> 9], out.q + 2 * e);
    }
    detail::iq2_scales(d, scales, out);
  }
};

template <>
struct Unit<quant::Type::IQ2_S> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x2 qs, signs;
  uint16_t qh, scales, d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    const uint64_t block = i / 4, l = i % 4;
    return {detail::load<detail::U32x2>(w, 0, 64 * block + 8 * l),
            detail::load<detail::U32x2>(w, 0, 64 * block + 32 + 8 * l),
            detail::load_small<uint16_t>(w, 1, 2ull * i), detail::load_small<uint16_t>(w, 2, 2ull * i),
            detail::load_small<uint16_t>(w, 3, 2 * block)};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    for (int e = 0; e < 8; ++e) {
      const uint32_t shift = static_cast<uint32_t>(8 * (e % 4));
      const uint32_t index =
          ((qs.v[e / 4] >> shift) & 255u) | (((static_cast<uint32_t>(qh) >> (2 * e)) & 3u) << 8);
      detail::put_iq2(books->iq2_s[index] | detail::spread_to_nibbles((signs.v[e / 4] >> shift) & 255u),
                      out.q + 2 * e);
    }
    detail::iq2_scales(d, scales, out);
  }
};

template <>
struct Unit<quant::Type::IQ3_XXS> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x4 qs;            ///< an index for 4 values
  detail::U32x2 scales_signs;  ///< for 32 values: 4 sign patterns of 7 bits, a scale of 4
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x4>(w, 0, 16ull * i), detail::load<detail::U32x2>(w, 1, 8ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    constexpr uint32_t low = detail::pack4(quant::kIq3XxsLevels),
                       high = detail::pack4(quant::kIq3XxsLevels + 4);
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t word = scales_signs.v[h];
      for (int e = 0; e < 8; ++e) {
        const uint32_t index = (qs.v[2 * h + e / 4] >> (8 * (e % 4))) & 255u;
        const uint32_t signs = detail::even_signs((word >> (7 * (e / 2))) & 127u) >> (4 * (e % 2));
        out.q[8 * h + e] =
            detail::with_signs(detail::permute_bytes(low, high, books->iq3_xxs[index]), signs & 15u);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] = scale * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ3_S> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x4 qs;
  detail::U32x2 signs;
  uint16_t qh, d;
  uint8_t scales;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    const uint64_t block = i / 4, l = i % 4;
    return {detail::load<detail::U32x4>(w, 0, 16ull * i),
            detail::load<detail::U32x2>(w, 1, 40 * block + 8 + 8 * l),
            detail::load_small<uint16_t>(w, 1, 40 * block + 2 * l),
            detail::load_small<uint16_t>(w, 3, 2 * block), detail::load_small<uint8_t>(w, 2, i)};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    constexpr uint32_t low = detail::pack4(quant::kIq3SLevels), high = detail::pack4(quant::kIq3SLevels + 4);
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      for (int e = 0; e < 8; ++e) {
        const uint32_t index = ((qs.v[2 * h + e / 4] >> (8 * (e % 4))) & 255u) |
                               (((static_cast<uint32_t>(qh) >> (8 * h + e)) & 1u) << 8);
        out.q[8 * h + e] = detail::with_signs(detail::permute_bytes(low, high, books->iq3_s[index]),
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
  static constexpr bool kHasMin = false;
  detail::U32x2 qs;
  uint32_t qh;  ///< for 32 values, 16 bits: 4 x 3 high bits, a scale of 3, the shift's sign
  uint16_t d;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x2>(w, 0, 8ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<uint16_t>(w, 2, 2ull * (i / 4))};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    const float scale = simt::half_to_float(d);
    for (int h = 0; h < 2; ++h) {
      const uint32_t high = (qh >> (16 * h)) & 0xffffu;
      for (int e = 0; e < 4; ++e) {
        const uint32_t index = ((qs.v[h] >> (8 * e)) & 255u) | (((high >> (3 * e)) & 7u) << 8);
        detail::put_iq1(books->iq1[index], (high >> 15) != 0, out.q + 8 * h + 2 * e);
      }
      out.scale[2 * h] = out.scale[2 * h + 1] =
          scale * static_cast<float>(2 * ((high >> 12) & 7u) + 1) * 0.125f;
    }
  }
};

template <>
struct Unit<quant::Type::IQ1_M> {
  static constexpr int kValues = 64;
  static constexpr bool kHasMin = false;
  detail::U32x2 qs;
  uint32_t qh;           ///< a nibble for 8 values: 3 high bits, the shift's sign
  detail::U32x2 scales;  ///< 4 x 16 bits: 4 scales of 3 bits, a nibble of the block's scale
  uint32_t l;

  static RL_DEVICE Unit load(const PlaneMatrix& w, uint32_t i) {
    return {detail::load<detail::U32x2>(w, 0, 8ull * i), detail::load_small<uint32_t>(w, 1, 4ull * i),
            detail::load_small<detail::U32x2>(w, 2, 8ull * (i / 4)), i % 4};
  }
  RL_DEVICE void unpack(const Codebooks* books, UnitValues<64>& out) const {
    const uint32_t half = ((scales.v[0] >> 12) & 0xfu) | ((scales.v[0] >> 24) & 0xf0u) |
                          ((scales.v[1] >> 4) & 0xf00u) | ((scales.v[1] >> 16) & 0xf000u);
    const float d = simt::half_to_float(static_cast<uint16_t>(half));
    const uint32_t word = (l < 2 ? scales.v[0] : scales.v[1]) >> (16 * (l % 2));
    for (int e = 0; e < 8; ++e) {
      const uint32_t nibble = (qh >> (4 * e)) & 15u;
      const uint32_t index = ((qs.v[e / 4] >> (8 * (e % 4))) & 255u) | ((nibble & 7u) << 8);
      detail::put_iq1(books->iq1[index], (nibble & 8u) != 0, out.q + 2 * e);
    }
    for (int g = 0; g < 4; ++g) {
      out.scale[g] = d * static_cast<float>(2 * ((word >> (3 * g)) & 7u) + 1) * 0.125f;
    }
  }
};

#undef RL_LEVELS

}  // namespace redlite::gpu
