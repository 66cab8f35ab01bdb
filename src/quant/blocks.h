#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "quant/codebooks.h"
#include "quant/type.h"

/// The blocks of the quantised types: their bytes, and for each an `unpack` into integers and scales. Every
/// quantised value is
///     scale[i / 16] * q[i] - min[i / 16]
/// with an integer |q| <= 128; the products are exact in binary32, so only the subtraction rounds.
/// docs/formats.md describes the layouts. Plain inline code without tables in memory other than the
/// codebooks.
namespace redlite::quant {

/// The values of one block as integers, with a scale and a minimum for each 16 of them.
template <int N>
struct Unpacked {
  static constexpr int kValues = N;
  int8_t q[N];
  float scale[N / 16];
  float min[N / 16];
};

struct BlockQ4_0 {
  static constexpr Type kType = Type::Q4_0;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t qs[16];  ///< value i in the low nibble of qs[i], value 16 + i in the high one
};

struct BlockQ4_1 {
  static constexpr Type kType = Type::Q4_1;
  static constexpr int kValues = 32;
  uint16_t d, m;
  uint8_t qs[16];
};

struct BlockQ5_0 {
  static constexpr Type kType = Type::Q5_0;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t qh[4];  ///< fifth bit of value i in bit i
  uint8_t qs[16];
};

struct BlockQ5_1 {
  static constexpr Type kType = Type::Q5_1;
  static constexpr int kValues = 32;
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ8_0 {
  static constexpr Type kType = Type::Q8_0;
  static constexpr int kValues = 32;
  uint16_t d;
  int8_t qs[32];
};

struct BlockQ2_K {
  static constexpr Type kType = Type::Q2_K;
  static constexpr int kValues = 256;
  uint8_t scales[16];  ///< low nibble: scale, high nibble: min of 16 values
  uint8_t qs[64];      ///< 128 values in 32 bytes: value 32 k + i in bits 2 k of byte i
  uint16_t d, dmin;
};

struct BlockQ3_K {
  static constexpr Type kType = Type::Q3_K;
  static constexpr int kValues = 256;
  uint8_t hmask[32];  ///< third bit of value 32 k + i in bit k of byte i
  uint8_t qs[64];     ///< two low bits, as in Q2_K
  uint8_t scales[12];
  uint16_t d;
};

struct BlockQ4_K {
  static constexpr Type kType = Type::Q4_K;
  static constexpr int kValues = 256;
  uint16_t d, dmin;
  uint8_t scales[12];  ///< 8 scales and 8 mins of 6 bits
  uint8_t qs[128];     ///< 64 values in 32 bytes: value i in the low nibble of byte i, 32 + i in the high one
};

struct BlockQ5_K {
  static constexpr Type kType = Type::Q5_K;
  static constexpr int kValues = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];  ///< fifth bit of value 32 k + i in bit k of byte i
  uint8_t qs[128];
};

struct BlockQ6_K {
  static constexpr Type kType = Type::Q6_K;
  static constexpr int kValues = 256;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

struct BlockIQ2_XXS {
  static constexpr Type kType = Type::IQ2_XXS;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t qs[32];  ///< for 32 values: 4 indices of 8 bits, 4 sign patterns of 7, a scale of 4
};

struct BlockIQ2_XS {
  static constexpr Type kType = Type::IQ2_XS;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t qs[32];    ///< for 8 values: an index of 9 bits, a sign pattern of 7
  uint8_t scales[8];  ///< a nibble for 16 values
};

struct BlockIQ2_S {
  static constexpr Type kType = Type::IQ2_S;
  static constexpr int kValues = 256;
  uint16_t d;
  uint8_t qs[32];     ///< low 8 bits of the index for 8 values
  uint8_t signs[32];  ///< a bit a value
  uint8_t qh[8];      ///< high 2 bits of 4 indices
  uint8_t scales[8];
};

struct BlockIQ3_XXS {
  static constexpr Type kType = Type::IQ3_XXS;
  static constexpr int kValues = 256;
  uint16_t d;
  uint8_t qs[64];                ///< an index for 4 values
  uint8_t scales_and_signs[32];  ///< for 32 values: 4 sign patterns of 7 bits, a scale of 4
};

struct BlockIQ3_S {
  static constexpr Type kType = Type::IQ3_S;
  static constexpr int kValues = 256;
  uint16_t d;
  uint8_t qs[64];     ///< low 8 bits of the index for 4 values
  uint8_t qh[8];      ///< ninth bit of 8 indices
  uint8_t signs[32];  ///< a bit a value
  uint8_t scales[4];  ///< a nibble for 32 values
};

struct BlockIQ1_S {
  static constexpr Type kType = Type::IQ1_S;
  static constexpr int kValues = 256;
  uint16_t d;
  uint8_t qs[32];  ///< low 8 bits of the index for 8 values
  uint16_t qh[8];  ///< for 32 values: 4 x 3 high bits, a scale of 3, the shift's sign
};

struct BlockIQ1_M {
  static constexpr Type kType = Type::IQ1_M;
  static constexpr int kValues = 256;
  uint8_t qs[32];     ///< low 8 bits of the index for 8 values
  uint8_t qh[16];     ///< a nibble for 8 values: 3 high bits, the shift's sign
  uint8_t scales[8];  ///< 4 words: 4 scales of 3 bits, and in the top nibbles the block's binary16 scale
};

struct BlockIQ4_NL {
  static constexpr Type kType = Type::IQ4_NL;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t qs[16];
};

struct BlockIQ4_XS {
  static constexpr Type kType = Type::IQ4_XS;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];  ///< 32 values in 16 bytes: value i in the low nibble of byte i, 16 + i in the high one
};

struct BlockMXFP4 {
  static constexpr Type kType = Type::MXFP4;
  static constexpr int kValues = 32;
  uint8_t e;  ///< exponent of the scale, biased by 127
  uint8_t qs[16];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82 && sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17);

// ---- 32 values with one scale ----

template <int N>
inline void set_scale(Unpacked<N>& out, int group32, float scale, float min = 0) {
  out.scale[2 * group32] = out.scale[2 * group32 + 1] = scale;
  out.min[2 * group32] = out.min[2 * group32 + 1] = min;
}

inline void unpack(const BlockQ4_0& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<int8_t>((b.qs[i] & 15) - 8);
    out.q[16 + i] = static_cast<int8_t>((b.qs[i] >> 4) - 8);
  }
}

inline void unpack(const BlockQ4_1& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d), -f16_to_f32(b.m));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<int8_t>(b.qs[i] & 15);
    out.q[16 + i] = static_cast<int8_t>(b.qs[i] >> 4);
  }
}

inline int bit_of(const uint8_t* bits, int i) {
  return (bits[i >> 3] >> (i & 7)) & 1;
}

inline void unpack(const BlockQ5_0& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<int8_t>((b.qs[i] & 15) + 16 * bit_of(b.qh, i) - 16);
    out.q[16 + i] = static_cast<int8_t>((b.qs[i] >> 4) + 16 * bit_of(b.qh, 16 + i) - 16);
  }
}

inline void unpack(const BlockQ5_1& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d), -f16_to_f32(b.m));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<int8_t>((b.qs[i] & 15) + 16 * bit_of(b.qh, i));
    out.q[16 + i] = static_cast<int8_t>((b.qs[i] >> 4) + 16 * bit_of(b.qh, 16 + i));
  }
}

inline void unpack(const BlockQ8_0& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d));
  std::memcpy(out.q, b.qs, 32);
}

inline void unpack(const BlockIQ4_NL& b, Unpacked<32>& out) {
  set_scale(out, 0, f16_to_f32(b.d));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = kIq4Levels[b.qs[i] & 15];
    out.q[16 + i] = kIq4Levels[b.qs[i] >> 4];
  }
}

/// MXFP4's scale, halved because kMxfp4Levels are doubled: 2^(e - 128).
inline float mxfp4_scale(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

inline void unpack(const BlockMXFP4& b, Unpacked<32>& out) {
  set_scale(out, 0, mxfp4_scale(b.e));
  for (int i = 0; i < 16; ++i) {
    out.q[i] = kMxfp4Levels[b.qs[i] & 15];
    out.q[16 + i] = kMxfp4Levels[b.qs[i] >> 4];
  }
}

// ---- 256 values with scales of scales ----

inline void unpack(const BlockQ2_K& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 16; ++g) {
    out.scale[g] = d * static_cast<float>(b.scales[g] & 15);
    out.min[g] = dmin * static_cast<float>(b.scales[g] >> 4);
    const uint8_t* qs = b.qs + 32 * (g / 8) + 16 * (g % 2);
    const int shift = 2 * (g / 2 % 4);
    for (int i = 0; i < 16; ++i) out.q[16 * g + i] = static_cast<int8_t>((qs[i] >> shift) & 3);
  }
}

inline void unpack(const BlockQ3_K& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const int low = (b.scales[g % 8] >> (g < 8 ? 0 : 4)) & 15;
    const int high = (b.scales[8 + g % 4] >> (2 * (g / 4))) & 3;
    out.scale[g] = d * static_cast<float>((low | (high << 4)) - 32);
    out.min[g] = 0;
    const uint8_t* qs = b.qs + 32 * (g / 8) + 16 * (g % 2);
    const uint8_t* hmask = b.hmask + 16 * (g % 2);
    const int shift = 2 * (g / 2 % 4);
    for (int i = 0; i < 16; ++i) {
      const int third = (hmask[i] >> (g / 2)) & 1;
      out.q[16 * g + i] = static_cast<int8_t>(((qs[i] >> shift) & 3) + 4 * third - 4);
    }
  }
}

/// Scale and min j (of 8) of Q4_K and Q5_K: 6 bits each, the last four split into nibbles and pairs of bits.
inline void scale_min_k4(const uint8_t* scales, int j, int& scale, int& min) {
  if (j < 4) {
    scale = scales[j] & 63;
    min = scales[j + 4] & 63;
  } else {
    scale = (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4);
    min = (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4);
  }
}

inline void unpack(const BlockQ4_K& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    int scale, min;
    scale_min_k4(b.scales, g, scale, min);
    set_scale(out, g, d * static_cast<float>(scale), dmin * static_cast<float>(min));
    const uint8_t* qs = b.qs + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) out.q[32 * g + i] = static_cast<int8_t>((qs[i] >> shift) & 15);
  }
}

inline void unpack(const BlockQ5_K& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    int scale, min;
    scale_min_k4(b.scales, g, scale, min);
    set_scale(out, g, d * static_cast<float>(scale), dmin * static_cast<float>(min));
    const uint8_t* qs = b.qs + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) {
      out.q[32 * g + i] = static_cast<int8_t>(((qs[i] >> shift) & 15) + 16 * ((b.qh[i] >> g) & 1));
    }
  }
}

inline void unpack(const BlockQ6_K& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    out.scale[g] = d * static_cast<float>(b.scales[g]);
    out.min[g] = 0;
    const int k = g / 2 % 4;  // which 32 of the 128
    const uint8_t* ql = b.ql + 64 * (g / 8) + 32 * (k % 2) + 16 * (g % 2);
    const uint8_t* qh = b.qh + 32 * (g / 8) + 16 * (g % 2);
    for (int i = 0; i < 16; ++i) {
      const int low = (ql[i] >> (4 * (k / 2))) & 15;
      const int high = (qh[i] >> (2 * k)) & 3;
      out.q[16 * g + i] = static_cast<int8_t>((low | (high << 4)) - 32);
    }
  }
}

inline void unpack(const BlockIQ4_XS& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const int low = (b.scales_l[g / 2] >> (4 * (g % 2))) & 15;
    const int high = (b.scales_h >> (2 * g)) & 3;
    set_scale(out, g, d * static_cast<float>((low | (high << 4)) - 32));
    for (int i = 0; i < 16; ++i) {
      out.q[32 * g + i] = kIq4Levels[b.qs[16 * g + i] & 15];
      out.q[32 * g + 16 + i] = kIq4Levels[b.qs[16 * g + i] >> 4];
    }
  }
}

// ---- codebooks ----

/// A sign pattern of 8 bits from 7: the eighth makes the number of negative values even.
inline uint32_t even_signs(uint32_t seven_bits) {
  uint32_t parity = seven_bits ^ (seven_bits >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven_bits | ((parity & 1) << 7);
}

inline int8_t with_sign(int value, uint32_t signs, int i) {
  return static_cast<int8_t>((signs >> i) & 1 ? -value : value);
}

inline void put_iq2(uint32_t code, uint32_t signs, int8_t* q) {
  for (int i = 0; i < 8; ++i) q[i] = with_sign(kIq2Levels[(code >> (2 * i)) & 3], signs, i);
}

inline void put_iq3(const uint8_t* levels, uint32_t code, uint32_t signs, int8_t* q) {
  for (int i = 0; i < 4; ++i) q[i] = with_sign(levels[(code >> (3 * i)) & 7], signs, i);
}

/// The ternary values carry a shift of +-1/8: eight times that is an integer.
inline void put_iq1(uint32_t code, bool negative_shift, int8_t* q) {
  const int shift = negative_shift ? -9 : -7;
  for (int i = 0; i < 8; ++i) q[i] = static_cast<int8_t>(8 * static_cast<int>((code >> (2 * i)) & 3) + shift);
}

inline void unpack(const BlockIQ2_XXS& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const uint32_t index = b.qs[4 * g] | static_cast<uint32_t>(b.qs[4 * g + 1]) << 16;
    const uint32_t signs = b.qs[4 * g + 2] | static_cast<uint32_t>(b.qs[4 * g + 3]) << 16;
    set_scale(out, g, d * (0.5f + static_cast<float>(signs >> 28)) * 0.25f);
    for (int e = 0; e < 4; ++e) {
      put_iq2(kIq2XxsCodes[(index >> (8 * e)) & 255], even_signs((signs >> (7 * e)) & 127),
              out.q + 32 * g + 8 * e);
    }
  }
}

inline void unpack(const BlockIQ2_XS& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const int scale = (b.scales[g / 2] >> (4 * (g % 2))) & 15;
    out.scale[g] = d * (0.5f + static_cast<float>(scale)) * 0.25f;
    out.min[g] = 0;
    for (int e = 2 * g; e < 2 * g + 2; ++e) {
      put_iq2(kIq2XsCodes[b.qs[e] & 511], even_signs(b.qs[e] >> 9), out.q + 8 * e);
    }
  }
}

inline void unpack(const BlockIQ2_S& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const int scale = (b.scales[g / 2] >> (4 * (g % 2))) & 15;
    out.scale[g] = d * (0.5f + static_cast<float>(scale)) * 0.25f;
    out.min[g] = 0;
    for (int e = 2 * g; e < 2 * g + 2; ++e) {
      const int high = (b.qh[e / 4] >> (2 * (e % 4))) & 3;
      put_iq2(kIq2SCodes[b.qs[e] | (high << 8)], b.signs[e], out.q + 8 * e);
    }
  }
}

inline void unpack(const BlockIQ3_XXS& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(b.scales_and_signs[4 * g + i]) << (8 * i);
    set_scale(out, g, d * (0.5f + static_cast<float>(word >> 28)) * 0.5f);
    for (int e = 0; e < 8; ++e) {
      const uint32_t signs = even_signs((word >> (7 * (e / 2))) & 127) >> (4 * (e % 2));
      put_iq3(kIq3XxsLevels, kIq3XxsCodes[b.qs[8 * g + e]], signs, out.q + 32 * g + 4 * e);
    }
  }
}

inline void unpack(const BlockIQ3_S& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const int scale = (b.scales[g / 2] >> (4 * (g % 2))) & 15;
    set_scale(out, g, d * static_cast<float>(1 + 2 * scale));
    for (int e = 0; e < 8; ++e) {
      const int high = (b.qh[g] >> e) & 1;
      const uint32_t signs = static_cast<uint32_t>(b.signs[4 * g + e / 2]) >> (4 * (e % 2));
      put_iq3(kIq3SLevels, kIq3SCodes[b.qs[8 * g + e] | (high << 8)], signs, out.q + 32 * g + 4 * e);
    }
  }
}

inline void unpack(const BlockIQ1_S& b, Unpacked<256>& out) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const int scale = 2 * ((b.qh[g] >> 12) & 7) + 1;
    set_scale(out, g, d * static_cast<float>(scale) * 0.125f);
    for (int e = 0; e < 4; ++e) {
      const int index = b.qs[4 * g + e] | (((b.qh[g] >> (3 * e)) & 7) << 8);
      put_iq1(kIq1Codes[index], b.qh[g] >> 15, out.q + 32 * g + 8 * e);
    }
  }
}

inline void unpack(const BlockIQ1_M& b, Unpacked<256>& out) {
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = b.scales[2 * i] | static_cast<uint32_t>(b.scales[2 * i + 1]) << 8;
  const uint32_t bits =
      (words[0] >> 12) | ((words[1] >> 8) & 0xf0) | ((words[2] >> 4) & 0xf00) | (words[3] & 0xf000);
  const float d = f16_to_f32(static_cast<uint16_t>(bits));
  for (int g = 0; g < 16; ++g) {
    const uint32_t scale = 2 * ((words[g / 4] >> (3 * (g % 4))) & 7) + 1;
    out.scale[g] = d * static_cast<float>(scale) * 0.125f;
    out.min[g] = 0;
    for (int e = 2 * g; e < 2 * g + 2; ++e) {
      const int nibble = b.qh[g] >> (4 * (e % 2));
      put_iq1(kIq1Codes[b.qs[e] | ((nibble & 7) << 8)], (nibble & 8) != 0, out.q + 8 * e);
    }
  }
}

/// Calls `use.template operator()<Block>()` with the block struct of a quantised type (not F32, F16, BF16).
template <typename Use>
inline void with_block(Type type, Use&& use) {
  switch (type) {
    case Type::Q4_0:
      return use.template operator()<BlockQ4_0>();
    case Type::Q4_1:
      return use.template operator()<BlockQ4_1>();
    case Type::Q5_0:
      return use.template operator()<BlockQ5_0>();
    case Type::Q5_1:
      return use.template operator()<BlockQ5_1>();
    case Type::Q8_0:
      return use.template operator()<BlockQ8_0>();
    case Type::Q2_K:
      return use.template operator()<BlockQ2_K>();
    case Type::Q3_K:
      return use.template operator()<BlockQ3_K>();
    case Type::Q4_K:
      return use.template operator()<BlockQ4_K>();
    case Type::Q5_K:
      return use.template operator()<BlockQ5_K>();
    case Type::Q6_K:
      return use.template operator()<BlockQ6_K>();
    case Type::IQ2_XXS:
      return use.template operator()<BlockIQ2_XXS>();
    case Type::IQ2_XS:
      return use.template operator()<BlockIQ2_XS>();
    case Type::IQ3_XXS:
      return use.template operator()<BlockIQ3_XXS>();
    case Type::IQ1_S:
      return use.template operator()<BlockIQ1_S>();
    case Type::IQ4_NL:
      return use.template operator()<BlockIQ4_NL>();
    case Type::IQ3_S:
      return use.template operator()<BlockIQ3_S>();
    case Type::IQ2_S:
      return use.template operator()<BlockIQ2_S>();
    case Type::IQ4_XS:
      return use.template operator()<BlockIQ4_XS>();
    case Type::IQ1_M:
      return use.template operator()<BlockIQ1_M>();
    case Type::MXFP4:
      return use.template operator()<BlockMXFP4>();
    case Type::F32:
    case Type::F16:
    case Type::BF16:
      return;
  }
}

/// True for types whose blocks carry minimums.
constexpr bool has_min(Type type) {
  return type == Type::Q4_1 || type == Type::Q5_1 || type == Type::Q2_K || type == Type::Q4_K ||
         type == Type::Q5_K;
}

constexpr bool is_float(Type type) {
  return type == Type::F32 || type == Type::F16 || type == Type::BF16;
}

}  // namespace redlite::quant
