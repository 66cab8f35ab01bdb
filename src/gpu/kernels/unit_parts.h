#pragma once

#include <cstdint>

#include "gpu/codebooks.h"
#include "gpu/kernels/books.h"
#include "gpu/planes.h"
#include "gpu/simt.h"
#include "quant/codebooks.h"
#include "quant/type.h"

/// What units of several types share; units.h says what a unit is.
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

namespace detail {

using simt::select_bytes;
using simt::U32x2;
using simt::U32x4;

/// Some rows of a matrix in shared memory: byte b of plane p lies at plane[p] + b, for the rows' bytes.
struct StagedPlanes {
  simt::SharedAddress plane[kMaxPlanes];
};

template <typename T>
RL_DEVICE inline T load(const PlaneMatrix& w, int plane, uint64_t byte) {
  return simt::load_once(reinterpret_cast<const T*>(w.data + w.plane[plane] + byte));
}
template <typename T>
RL_DEVICE inline T load(const StagedPlanes& w, int plane, uint64_t byte) {
  return simt::load_shared<T>(w.plane[plane] + static_cast<simt::SharedAddress>(byte));
}
/// Fields of a few bytes, which neighbouring threads read together: through the cache.
template <typename T>
RL_DEVICE inline T load_small(const PlaneMatrix& w, int plane, uint64_t byte) {
  return simt::load_cached(reinterpret_cast<const T*>(w.data + w.plane[plane] + byte));
}
template <typename T>
RL_DEVICE inline T load_small(const StagedPlanes& w, int plane, uint64_t byte) {
  return load<T>(w, plane, byte);
}

/// Byte i of a word.
RL_DEVICE inline uint32_t byte_of(uint32_t word, int i) {
  return select_bytes(word, 0, 0x4440u + static_cast<uint32_t>(i));
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
  const uint32_t low = select_bytes(levels[0], levels[1], codes & 0x7777u);
  const uint32_t high = select_bytes(levels[2], levels[3], codes & 0x7777u);
  return select_bytes(low, high, 0x3210u | ((codes & 0x8888u) >> 1));
}
/// The levels for the low nibbles of four bytes, and for the high ones.
RL_DEVICE inline void look_up_nibbles(uint32_t bytes, const uint32_t (&levels)[4], uint32_t& low,
                                      uint32_t& high) {
  const uint32_t first = look_up16(bytes & 0xffffu, levels);
  const uint32_t second = look_up16(bytes >> 16, levels);
  low = select_bytes(first, second, 0x6420u);
  high = select_bytes(first, second, 0x7531u);
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
  q[0] = select_bytes(kIq2Positive, kIq2Negative, nibbles);
  q[1] = select_bytes(kIq2Positive, kIq2Negative, nibbles >> 16);
}

/// Eight values 8 c + 1 or 8 c - 1, c in {-1, 0, 1}.
RL_DEVICE inline void put_iq1(uint32_t nibbles, bool negative_shift, uint32_t* q) {
  const uint32_t levels = negative_shift ? 0x0007fff7u : 0x000901f9u;
  q[0] = select_bytes(levels, 0, nibbles);
  q[1] = select_bytes(levels, 0, nibbles >> 16);
}

inline constexpr uint32_t kMxfp4Words[4] = {pack4(quant::kMxfp4Levels), pack4(quant::kMxfp4Levels + 4),
                                            pack4(quant::kMxfp4Levels + 8), pack4(quant::kMxfp4Levels + 12)};
inline constexpr uint32_t kIq4Words[4] = {pack4(quant::kIq4Levels), pack4(quant::kIq4Levels + 4),
                                          pack4(quant::kIq4Levels + 8), pack4(quant::kIq4Levels + 12)};

/// A copy that lives in registers or as immediates.
#define RL_LEVELS(name) \
  { (name)[0], (name)[1], (name)[2], (name)[3] }

}  // namespace detail

}  // namespace redlite::gpu
