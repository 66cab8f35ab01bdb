#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/grids.h"
#include "quant/codebooks.h"

/// Constants of the AVX-512 decoders, one 512-bit register each. A decoder puts a block's weights as bytes
/// w + offset into four registers j = 0 .. 3; 32-bit lane L = 2 m + h of register j holds values
/// 16 L + 4 j + i, i = 0 .. 3, of the block's 256: lane h of the 64-bit lane m, which is 32 values long.
namespace redlite::cpu::dl {

template <typename T>
using Register = std::array<T, 64 / sizeof(T)>;

template <typename T, typename Of>
constexpr Register<T> make(Of of) {
  Register<T> out{};
  for (int i = 0; i < static_cast<int>(out.size()); ++i) out[static_cast<size_t>(i)] = static_cast<T>(of(i));
  return out;
}

template <typename T, typename Of>
constexpr std::array<Register<T>, 4> make_four(Of of) {
  std::array<Register<T>, 4> out{};
  for (int j = 0; j < 4; ++j) out[static_cast<size_t>(j)] = make<T>([=](int i) { return of(j, i); });
  return out;
}

// ---- K types: which dword of the packed bits holds the values of (j, lane), and where in it ----

/// Q4_K, Q5_K: 32-bit words of qs.
alignas(64) inline constexpr auto kK4Words = make_four<int32_t>([](int j, int lane) {
  return 8 * (lane / 4) + 4 * (lane % 2) + j;
});
alignas(64) inline constexpr auto kK4Shift = make<int32_t>([](int lane) { return 4 * (lane / 2 % 2); });
/// Q5_K's and Q3_K's high bits: 32 bytes.
alignas(64) inline constexpr auto kHighWords = make_four<int32_t>([](int j, int lane) {
  return 4 * (lane % 2) + j;
});
alignas(64) inline constexpr auto kK5HighRotate = make<int32_t>([](int lane) { return (lane / 2 - 4) & 31; });
alignas(64) inline constexpr auto kK3HighRotate = make<int32_t>([](int lane) { return (lane / 2 - 2) & 31; });
/// Q2_K, Q3_K: 2 bits.
alignas(64) inline constexpr auto kK2Words = make_four<int32_t>([](int j, int lane) {
  return 8 * (lane / 8) + 4 * (lane % 2) + j;
});
alignas(64) inline constexpr auto kK2Shift = make<int32_t>([](int lane) { return 2 * (lane / 2 % 4); });
/// Q6_K.
alignas(64) inline constexpr auto kK6LowWords = make_four<int32_t>([](int j, int lane) {
  return 16 * (lane / 8) + 8 * (lane / 2 % 2) + 4 * (lane % 2) + j;
});
alignas(64) inline constexpr auto kK6LowShift = make<int32_t>([](int lane) { return 4 * (lane / 4 % 2); });
alignas(64) inline constexpr auto kK6HighRotate = make<int32_t>([](int lane) {
  return (2 * (lane / 2 % 4) - 4) & 31;
});
/// Nibbles of 32 values in 16 bytes: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_XS, MXFP4.
alignas(64) inline constexpr auto kNibbleWords = make_four<int32_t>([](int j, int lane) {
  return 4 * (lane / 2) + j;
});
alignas(64) inline constexpr auto kNibbleShift = make<int32_t>([](int lane) { return 4 * (lane % 2); });

// ---- scales of 6 bits packed in 12 bytes; byte 0 of lane L from bits [control] of the first 8 bytes or the
// last 4, other bytes masked off ----

/// Q4_K and Q5_K: group g < 4 has all bits in the first word, the others 2 there and 4 in the second.
constexpr int k4_first_offset(int g) {
  return g < 4 ? 8 * g : 8 * (g - 4) + 2;
}
alignas(64) inline constexpr auto kK4ScaleFirst = make<uint8_t>([](int byte) {
  return k4_first_offset(byte / 8) & 63;
});
alignas(64) inline constexpr auto kK4ScaleSecond = make<uint8_t>([](int byte) {
  return byte / 8 < 4 ? 0 : 8 * (byte / 8 - 4);
});
alignas(64) inline constexpr auto kK4MinFirst = make<uint8_t>([](int byte) {
  return (32 + k4_first_offset(byte / 8)) & 63;
});
alignas(64) inline constexpr auto kK4MinSecond = make<uint8_t>([](int byte) {
  return byte / 8 < 4 ? 0 : 8 * (byte / 8 - 4) + 4;
});
alignas(64) inline constexpr auto kK4FirstMask = make<int32_t>([](int lane) {
  return lane / 2 < 4 ? 0x3f : 0x30;
});
alignas(64) inline constexpr auto kK4SecondMask = make<int32_t>([](int lane) {
  return lane / 2 < 4 ? 0 : 0x0f;
});
/// Q3_K.
alignas(64) inline constexpr auto kK3ScaleLow = make<uint8_t>([](int byte) {
  return 8 * (byte / 4 % 8) + 4 * (byte / 4 / 8);
});
alignas(64) inline constexpr auto kK3ScaleHigh = make<uint8_t>([](int byte) {
  return (8 * (byte / 4 % 4) + 2 * (byte / 4 / 4) - 4) & 63;
});
/// A nibble for each lane, in 8 bytes (IQ2_XS, IQ2_S); a nibble for two lanes, in 4 (IQ3_S, IQ4_XS).
alignas(64) inline constexpr auto kLaneNibble = make<uint8_t>([](int byte) { return 4 * (byte / 4); });
alignas(64) inline constexpr auto kPairNibbleShift = make<int32_t>([](int lane) { return 4 * (lane / 2); });
alignas(64) inline constexpr auto kIq4HighRotate = make<int32_t>([](int lane) {
  return (2 * (lane / 2) - 4) & 31;
});
/// IQ1_M: 3 bits for each lane, four to a 16-bit word.
alignas(64) inline constexpr auto kIq1MScale = make<uint8_t>([](int byte) {
  return 16 * (byte / 16) + 3 * (byte / 4 % 4);
});

/// IQ1_M, bytes of the block to the 64-bit lane m of four entries: 4 bytes of qs, and two of qh to bytes 4
/// and 6; the others are masked off.
alignas(64) inline constexpr auto kIq1MBytes = make<uint8_t>([](int byte) {
  const int m = byte / 8, i = byte % 8;
  return i < 4 ? 4 * m + i : 32 + 2 * m + i / 2 % 2;
});
/// From there the index of entry 2 (L % 2) to lane L, with a nibble too much above it, and of the entry
/// after.
alignas(64) inline constexpr auto kIq1MEven = make<uint8_t>([](int byte) {
  const int h = byte / 4 % 2, of_byte[4] = {16 * h, 32 + 16 * h, 40, 40};
  return of_byte[byte % 4];
});
alignas(64) inline constexpr auto kIq1MOdd = make<uint8_t>([](int byte) {
  const int h = byte / 4 % 2, of_byte[4] = {8 + 16 * h, 36 + 16 * h, 40, 40};
  return of_byte[byte % 4];
});
/// IQ1_S, the same: 4 bytes of qs and the word of qh; 3 high bits of entry e are at bit 3 e of the word.
alignas(64) inline constexpr auto kIq1SBytes = make<uint8_t>([](int byte) {
  const int m = byte / 8, i = byte % 8;
  return i < 4 ? 2 + 4 * m + i : 34 + 2 * m + i % 2;
});
alignas(64) inline constexpr auto kIq1SEven = make<uint8_t>([](int byte) {
  const int h = byte / 4 % 2, of_byte[4] = {16 * h, 32 + 6 * h, 48, 48};
  return of_byte[byte % 4];
});
alignas(64) inline constexpr auto kIq1SOdd = make<uint8_t>([](int byte) {
  const int h = byte / 4 % 2, of_byte[4] = {8 + 16 * h, 35 + 6 * h, 48, 48};
  return of_byte[byte % 4];
});
/// The scale, and above it the shift's sign, to the two lower bytes of each lane.
alignas(64) inline constexpr auto kIq1SScale = make<uint8_t>([](int byte) { return byte % 4 < 2 ? 44 : 48; });
/// MXFP4: the first byte of each of 8 blocks of 17.
alignas(64) inline constexpr auto kMxfp4Exponents = make<uint8_t>([](int byte) { return 17 * (byte / 8); });
/// Q8_0: dwords of registers that hold 4 lanes each; the upper half of the result is not used.
alignas(64) inline constexpr auto kQ8Words = make_four<int32_t>([](int j, int lane) {
  return lane < 8 ? 16 * (lane / 4) + 4 * (lane % 4) + j : 0;
});

/// Lane L from lane L / 2: scales of 32 values.
alignas(64) inline constexpr auto kTwice = make<int32_t>([](int lane) { return lane / 2; });

// ---- a bit for each value: 32 of them in the low half of a 64-bit lane ----

/// What moves the bit of each value to bit 4 of its byte.
constexpr int bit_offset(int j, int byte, int to_bit) {
  return (16 * (byte / 4 % 2) + 4 * j + byte % 4 - to_bit) & 63;
}
alignas(64) inline constexpr auto kBitToBit4 = make_four<uint8_t>([](int j, int byte) {
  return bit_offset(j, byte, 4);
});

// ---- scales by their 4 bits ----

alignas(64) inline constexpr auto kIq2Steps = make<float>([](int s) { return (0.5 + s) * 0.25; });
alignas(64) inline constexpr auto kIq3XxsSteps = make<float>([](int s) { return (0.5 + s) * 0.5; });
alignas(64) inline constexpr auto kIq3SSteps = make<float>([](int s) { return 1 + 2 * s; });

/// An eighth of it, for 3 bits with any bit above them.
alignas(64) inline constexpr auto kIq1Steps = make<float>([](int s) { return (1 + 2 * (s & 7)) / 64.0; });

// ---- codebooks ----

/// IQ1: nibbles (weight + 9) / 2 of an entry's 8 weights 8 (code - 1) + 1, the first four low; from 2048 on
/// with the negative shift, 8 (code - 1) - 1.
alignas(64) inline constexpr auto kIq1Nibbles = [] {
  std::array<uint32_t, 4096> out{};
  for (size_t e = 0; e < 2048; ++e) {
    for (int i = 0; i < 8; ++i) {
      const auto four_times = static_cast<uint32_t>(4 * ((quant::kIq1Codes[e] >> (2 * i)) & 3));
      const int shift = 8 * (i % 4) + 4 * (i / 4);
      out[e] |= (four_times + 1) << shift;
      out[2048 + e] |= four_times << shift;
    }
  }
  return out;
}();
/// From such a nibble weight + kIq1Offset.
alignas(64) inline constexpr auto kIq1Values = make<uint8_t>([](int i) {
  return 2 * (i & 15) - 9 + kIq1Offset;
});

/// Table t of a plane: half of each code (2 values of 3 bits, as nibbles) of entries 64 t .. 64 t + 63.
template <int kTables, size_t kEntries>
constexpr std::array<Register<uint8_t>, kTables> half_plane(const uint16_t (&codes)[kEntries], int half) {
  static_assert(kTables * 64 == kEntries);
  std::array<Register<uint8_t>, kTables> out{};
  for (int e = 0; e < static_cast<int>(kEntries); ++e) {
    const int two = codes[e] >> (6 * half);
    out[static_cast<size_t>(e / 64)][static_cast<size_t>(e % 64)] =
        static_cast<uint8_t>((two & 7) | (two >> 3 & 7) << 4);
  }
  return out;
}
constexpr int parity(int bits) {
  int odd = 0;
  for (; bits != 0; bits &= bits - 1) odd ^= 1;
  return odd;
}
/// Table t of a plane: bit `bit` of the codes of all 8 values of entries 64 t .. 64 t + 63. With kParity the
/// eighth value's is the parity of the byte, as with signs (see kBitOrParity).
template <int kTables, bool kParity, size_t kEntries>
constexpr std::array<Register<uint8_t>, kTables> bit_plane(const uint16_t (&codes)[kEntries], int bit) {
  static_assert(kTables * 64 == kEntries);
  std::array<Register<uint8_t>, kTables> out{};
  for (int e = 0; e < static_cast<int>(kEntries); ++e) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= ((codes[e] >> (2 * i + bit)) & 1) << i;
    if (kParity) bits ^= parity(bits & 0x7f) << 7;
    out[static_cast<size_t>(e / 64)][static_cast<size_t>(e % 64)] = static_cast<uint8_t>(bits);
  }
  return out;
}

alignas(64) inline constexpr auto kIq2XxsLow = bit_plane<4, true>(quant::kIq2XxsCodes, 0);
alignas(64) inline constexpr auto kIq2XxsHigh = bit_plane<4, true>(quant::kIq2XxsCodes, 1);
alignas(64) inline constexpr auto kIq2XsLow = bit_plane<8, true>(quant::kIq2XsCodes, 0);
alignas(64) inline constexpr auto kIq2XsHigh = bit_plane<8, true>(quant::kIq2XsCodes, 1);
alignas(64) inline constexpr auto kIq2SLow = bit_plane<16, false>(quant::kIq2SCodes, 0);
alignas(64) inline constexpr auto kIq2SHighPlane = bit_plane<16, false>(quant::kIq2SCodes, 1);
alignas(64) inline constexpr auto kIq3XxsLow = half_plane<4>(quant::kIq3XxsCodes, 0);
alignas(64) inline constexpr auto kIq3XxsHigh = half_plane<4>(quant::kIq3XxsCodes, 1);
alignas(64) inline constexpr auto kIq3SLow = half_plane<8>(quant::kIq3SCodes, 0);
alignas(64) inline constexpr auto kIq3SHigh = half_plane<8>(quant::kIq3SCodes, 1);

/// Matrices of affine transformations, the row of bit 7 in the lowest byte. 7 bits to 8 of even parity:
inline constexpr int64_t kEvenParity = 0x010204081020407f;
/// Signs in bits 0 and 1, or 2 and 3, to bits 3 and 7:
inline constexpr int64_t kBits01ToSigns = 0x0000000100000002, kBits23ToSigns = 0x0000000400000008;
/// The nibbles of the low half of a 64-bit lane.
alignas(64) inline constexpr auto kNibbles = make<uint8_t>([](int byte) { return 4 * (byte % 8); });
/// Four patterns of 7 bits from the low half of a 64-bit lane.
alignas(64) inline constexpr auto kFourSevens = make<uint8_t>([](int byte) { return 7 * (byte % 4); });

/// The bytes of each 64-bit lane, first those of even number: of its 8 entries e, two of each lane of 16
/// values, the first of all lanes and then the second.
constexpr int even_then_odd(int byte) {
  return 2 * (byte % 4) + byte % 8 / 4;
}
alignas(64) inline constexpr auto kEvenThenOdd = make<uint8_t>([](int byte) {
  return 8 * even_then_odd(byte);
});
/// Patterns of 7 bits from both halves of a 64-bit lane, in the same order.
alignas(64) inline constexpr auto kEightSevens = make<uint8_t>([](int byte) {
  const int entry = even_then_odd(byte);
  return 32 * (entry / 4) + 7 * (entry % 4);
});
/// What selects the bit of a value from its entry's byte; register j % 2 for registers j of weights.
alignas(64) inline constexpr std::array<Register<uint8_t>, 2> kBit = {
    make<uint8_t>([](int byte) { return 1 << (byte % 4); }),
    make<uint8_t>([](int byte) { return 16 << (byte % 4); })};
/// The same where the eighth value's bit is the parity of the byte.
alignas(64) inline constexpr std::array<Register<uint8_t>, 2> kBitOrParity = {
    kBit[0], make<uint8_t>([](int byte) { return byte % 4 == 3 ? 0xff : 16 << (byte % 4); })};
/// A byte then has the bits of both lanes of its 64-bit lane: sign, low and high bit of the code, in 5, 3 and
/// 1 for the even one and 4, 2 and 0 for the odd one. This keeps its own lane's.
inline constexpr int64_t kIq2OwnBits = 0x151515152a2a2a2a;
/// For j = 0, 1 and again for 2, 3: a 32-bit lane holds [low j, low j + 1, high j, high j + 1] for its
/// values' nibbles.
alignas(64) inline constexpr auto kPick4 = make_four<uint8_t>([](int j, int byte) {
  const int h = byte / 4 % 2, i = byte % 4;
  return 32 * h + 16 * (i / 2) + 8 * (j % 2) + 4 * (i % 2);
});
/// From kIq2OwnBits of either lane.
alignas(64) inline constexpr auto kIq2Values = make<uint8_t>([](int i) {
  const int own = (i | i >> 1) & 0x15;
  const int level = quant::kIq2Levels[(own >> 2 & 1) | (own & 1) << 1];
  return kIq2Offset + ((own & 16) ? -level : level);
});
/// Code in the low bits, sign above it, anything above that.
alignas(64) inline constexpr auto kIq3XxsValues = make<uint8_t>([](int i) {
  const int level = quant::kIq3XxsLevels[i & 7];
  return kIq3Offset + ((i & 8) ? -level : level);
});
alignas(64) inline constexpr auto kIq3SValues = make<uint8_t>([](int i) {
  const int level = quant::kIq3SLevels[i & 7];
  return kIq3Offset + ((i & 8) ? -level : level);
});
alignas(64) inline constexpr auto kIq4Values = make<uint8_t>([](int i) {
  return 128 + quant::kIq4Levels[i & 15];
});
alignas(64) inline constexpr auto kMxfp4Values = make<uint8_t>([](int i) {
  return 16 + quant::kMxfp4Levels[i & 15];
});

/// Two blocks' 32 indices each, to the 128-bit lanes that hold [A's 8, B's 8]; see decode of IQ2_S.
alignas(64) inline constexpr auto kInterleaveQwords = make<int64_t>([](int i) {
  return i % 2 == 0 ? i / 2 : 8 + i / 2;
});
/// The two high bits of an IQ2_S index: of entry e of group g from bit 8 g + 2 e; in the
/// order of kEvenThenOdd.
alignas(64) inline constexpr auto kIq2SHigh = make<uint8_t>([](int byte) {
  const int entry = even_then_odd(byte);
  return 8 * (2 * (byte / 16) + entry / 4) + 2 * (entry % 4);
});

}  // namespace redlite::cpu::dl
