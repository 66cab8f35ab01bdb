// Decoders of 256 weights at a time for AVX2. Included inside the region that enables it, by avx2.cc only.
//
// A block is decoded in halves of 8 lanes; register j of half h holds values 16 L + 4 j + i of lanes
// L = 8 h .. 8 h + 7 as bytes w + offset (or w itself, for types whose offset would not fit the products).

using V = __m256i;
using F = __m256;

struct alignas(64) Decoded {
  V w[2][4];
  F scale[2];
  F min[2];  ///< only for types with mins
};

template <typename T>
HWY_INLINE T read(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
HWY_INLINE __m128i load16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
HWY_INLINE V load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const V*>(p));
}
/// 16 bytes in both halves.
HWY_INLINE V twice_16(const void* p) {
  return _mm256_broadcastsi128_si256(load16(p));
}
HWY_INLINE V pair(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
HWY_INLINE V bytes(int b) {
  return _mm256_set1_epi8(static_cast<char>(b));
}
HWY_INLINE F half(const void* p) {
  return _mm256_set1_ps(_cvtsh_ss(read<uint16_t>(p)));
}
HWY_INLINE F floats(V integers) {
  return _mm256_cvtepi32_ps(integers);
}
HWY_INLINE __m128i from_u64(uint64_t v) {
  return _mm_cvtsi64_si128(static_cast<long long>(v));
}
template <int kImmediate>
HWY_INLINE V shuffle_words(V a, V b) {
  return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), kImmediate));
}

/// How the products of a decoder's weights with activations fit 16 bits: kUnsigned: bytes w + 2^kOffsetBits;
/// kSums of the four registers' products can be added before they are widened. Otherwise bytes w.
template <typename BlockType, int kOffset, int kSumsThatFit>
struct UnsignedDecoder {
  using Block = BlockType;
  static constexpr bool kUnsigned = true;
  static constexpr int kOffsetBits = kOffset;
  static constexpr int kSums = kSumsThatFit;
  static constexpr bool kMins = quant::has_min(Block::kType);
};
template <typename BlockType>
struct SignedDecoder {
  using Block = BlockType;
  static constexpr bool kUnsigned = false;
  static constexpr int kOffsetBits = -1;
  static constexpr int kSums = 1;
  static constexpr bool kMins = false;
};

// ---- scales ----

/// Eight values, each for two lanes.
HWY_INLINE void put_pairs(F eight, F* out) {
  out[0] = _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  out[1] = _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
}
HWY_INLINE uint64_t spread_nibbles(uint32_t nibbles) {
  return _pdep_u64(nibbles, 0x0f0f0f0f0f0f0f0fu);
}

/// 8 scales and mins of 6 bits as bytes.
HWY_INLINE void scales_k4(const uint8_t* packed, uint64_t& scales, uint64_t& mins) {
  const auto a = read<uint32_t>(packed), b = read<uint32_t>(packed + 4), c = read<uint32_t>(packed + 8);
  const uint32_t high_scales = (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u);
  const uint32_t high_mins = ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u);
  scales = (a & 0x3f3f3f3fu) | static_cast<uint64_t>(high_scales) << 32;
  mins = (b & 0x3f3f3f3fu) | static_cast<uint64_t>(high_mins) << 32;
}

template <typename Block>
HWY_INLINE void put_scales_k4(const Block& b, Decoded& out) {
  uint64_t scales, mins;
  scales_k4(b.scales, scales, mins);
  put_pairs(_mm256_mul_ps(half(&b.d), floats(_mm256_cvtepu8_epi32(from_u64(scales)))), out.scale);
  put_pairs(_mm256_mul_ps(half(&b.dmin), floats(_mm256_cvtepu8_epi32(from_u64(mins)))), out.min);
}

/// Eight binary16, `stride` bytes apart.
HWY_INLINE F halves_8(const void* p, size_t stride) {
  const auto* from = static_cast<const std::byte*>(p);
  __m128i v = _mm_cvtsi32_si128(read<uint16_t>(from));
  v = _mm_insert_epi16(v, read<int16_t>(from + stride), 1);
  v = _mm_insert_epi16(v, read<int16_t>(from + 2 * stride), 2);
  v = _mm_insert_epi16(v, read<int16_t>(from + 3 * stride), 3);
  v = _mm_insert_epi16(v, read<int16_t>(from + 4 * stride), 4);
  v = _mm_insert_epi16(v, read<int16_t>(from + 5 * stride), 5);
  v = _mm_insert_epi16(v, read<int16_t>(from + 6 * stride), 6);
  v = _mm_insert_epi16(v, read<int16_t>(from + 7 * stride), 7);
  return _mm256_cvtph_ps(v);
}

// ---- K types ----

/// w[j] = lanes [x j, y j, x j, y j] of both 128-bit halves.
HWY_INLINE void alternate(V x, V y, V* w) {
  const V low = _mm256_unpacklo_epi32(x, y), high = _mm256_unpackhi_epi32(x, y);
  w[0] = _mm256_shuffle_epi32(low, 0x44);
  w[1] = _mm256_shuffle_epi32(low, 0xee);
  w[2] = _mm256_shuffle_epi32(high, 0x44);
  w[3] = _mm256_shuffle_epi32(high, 0xee);
}
/// w[j] = lanes [a j, b j, c j, d j] of both 128-bit halves.
HWY_INLINE void transpose(V a, V b, V c, V d, V* w) {
  const V ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const V cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  w[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  w[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  w[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  w[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/// The nibbles of half h of Q4_K and Q5_K.
HWY_INLINE void nibbles_k4(const uint8_t* qs, int h, V* w) {
  const uint8_t* first = qs + 64 * h;
  alternate(pair(load16(first), load16(first + 32)), pair(load16(first + 16), load16(first + 48)), w);
  const V shift = _mm256_setr_epi32(0, 0, 4, 4, 0, 0, 4, 4);
  for (int j = 0; j < 4; ++j) w[j] = _mm256_and_si256(_mm256_srlv_epi32(w[j], shift), bytes(15));
}
/// One more bit of each value of half h, from 32 bytes that hold that of value 32 k + i in bit k of byte i.
template <int kToBit>
HWY_INLINE void add_high_bits(const uint8_t* bits, int h, V* w) {
  V high[4];
  alternate(twice_16(bits), twice_16(bits + 16), high);
  const V shift = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(4 * h));
  for (int j = 0; j < 4; ++j) {
    const V bit = _mm256_and_si256(_mm256_srlv_epi32(high[j], shift), bytes(1));
    w[j] = _mm256_or_si256(w[j], _mm256_slli_epi16(bit, kToBit));
  }
}
/// 2 bits of each of 128 values from 32 bytes.
HWY_INLINE void pairs_of_bits(const uint8_t* qs, V* w) {
  alternate(twice_16(qs), twice_16(qs + 16), w);
  const V shift = _mm256_setr_epi32(0, 0, 2, 2, 4, 4, 6, 6);
  for (int j = 0; j < 4; ++j) w[j] = _mm256_and_si256(_mm256_srlv_epi32(w[j], shift), bytes(3));
}

struct DecodeQ4_K : UnsignedDecoder<quant::BlockQ4_K, -1, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_scales_k4(*b, out);
    for (int h = 0; h < 2; ++h) nibbles_k4(b->qs, h, out.w[h]);
  }
};

struct DecodeQ5_K : UnsignedDecoder<quant::BlockQ5_K, -1, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_scales_k4(*b, out);
    for (int h = 0; h < 2; ++h) {
      nibbles_k4(b->qs, h, out.w[h]);
      add_high_bits<4>(b->qh, h, out.w[h]);
    }
  }
};

struct DecodeQ6_K : UnsignedDecoder<quant::BlockQ6_K, 5, 2> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    for (int h = 0; h < 2; ++h) {
      const V scales =
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b->scales + 8 * h)));
      out.scale[h] = _mm256_mul_ps(half(&b->d), floats(scales));
      const uint8_t* ql = b->ql + 64 * h;
      V* const w = out.w[h];
      transpose(twice_16(ql), twice_16(ql + 16), twice_16(ql + 32), twice_16(ql + 48), w);
      V high[4];
      pairs_of_bits(b->qh + 32 * h, high);
      const V shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
      for (int j = 0; j < 4; ++j) {
        const V low = _mm256_and_si256(_mm256_srlv_epi32(w[j], shift), bytes(15));
        w[j] = _mm256_or_si256(low, _mm256_slli_epi16(high[j], 4));
      }
    }
  }
};

struct DecodeQ2_K : UnsignedDecoder<quant::BlockQ2_K, -1, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    for (int h = 0; h < 2; ++h) {
      const V packed =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b->scales + 8 * h)));
      out.scale[h] = _mm256_mul_ps(half(&b->d), floats(_mm256_and_si256(packed, _mm256_set1_epi32(15))));
      out.min[h] = _mm256_mul_ps(half(&b->dmin), floats(_mm256_srli_epi32(packed, 4)));
      pairs_of_bits(b->qs + 32 * h, out.w[h]);
    }
  }
};

struct DecodeQ3_K : UnsignedDecoder<quant::BlockQ3_K, 2, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const auto low = read<uint64_t>(b->scales);
    const uint64_t high = read<uint32_t>(b->scales + 8);
    for (int h = 0; h < 2; ++h) {
      const uint64_t top = high >> (4 * h);
      const uint64_t scales = ((low >> (4 * h)) & 0x0f0f0f0f0f0f0f0fu) | (top & 0x03030303u) << 4 |
                              ((top >> 2) & 0x03030303u) << 36;
      const V shifted = _mm256_sub_epi32(_mm256_cvtepu8_epi32(from_u64(scales)), _mm256_set1_epi32(32));
      out.scale[h] = _mm256_mul_ps(half(&b->d), floats(shifted));
      pairs_of_bits(b->qs + 32 * h, out.w[h]);
      add_high_bits<2>(b->hmask, h, out.w[h]);
    }
  }
};

// ---- nibbles of 32 values in 16 bytes ----

/// Half h: the low bits of each byte are its nibble (above it other bits).
HWY_INLINE void nibbles_32(const uint8_t* qs, size_t stride, int h, V* w) {
  const uint8_t* first = qs + 4 * static_cast<size_t>(h) * stride;
  const V x = pair(load16(first), load16(first + 2 * stride));
  const V y = pair(load16(first + stride), load16(first + 3 * stride));
  const V low = _mm256_unpacklo_epi32(x, y), high = _mm256_unpackhi_epi32(x, y);
  w[0] = _mm256_shuffle_epi32(low, 0x50);
  w[1] = _mm256_shuffle_epi32(low, 0xfa);
  w[2] = _mm256_shuffle_epi32(high, 0x50);
  w[3] = _mm256_shuffle_epi32(high, 0xfa);
  const V shift = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
  for (int j = 0; j < 4; ++j) w[j] = _mm256_and_si256(_mm256_srlv_epi32(w[j], shift), bytes(15));
}

/// 0xff where a value's bit is set; `words` has the 16 bits of each lane's values at the bottom.
HWY_INLINE V bit_mask(V words, int j) {
  const int at = j / 2;
  const V spread = _mm256_shuffle_epi8(
      words, _mm256_add_epi8(_mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0,
                                              4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12),
                             bytes(at)));
  const V bit = _mm256_set1_epi32(j % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

template <typename BlockType, int kOffset>
struct DecodeNibbles : UnsignedDecoder<BlockType, kOffset, 4> {
  static HWY_INLINE void decode(const BlockType* b, Decoded& out) {
    put_pairs(halves_8(&b->d, sizeof *b), out.scale);
    if constexpr (requires { b->m; }) {
      put_pairs(_mm256_xor_ps(_mm256_set1_ps(-0.0f), halves_8(&b->m, sizeof *b)), out.min);
    }
    for (int h = 0; h < 2; ++h) {
      nibbles_32(b->qs, sizeof *b, h, out.w[h]);
      if constexpr (requires { b->qh; }) {
        const BlockType* first = b + 4 * h;
        const __m128i a = _mm_unpacklo_epi32(_mm_cvtsi32_si128(read<int32_t>(first[0].qh)),
                                             _mm_cvtsi32_si128(read<int32_t>(first[1].qh)));
        const __m128i c = _mm_unpacklo_epi32(_mm_cvtsi32_si128(read<int32_t>(first[2].qh)),
                                             _mm_cvtsi32_si128(read<int32_t>(first[3].qh)));
        const V words = _mm256_cvtepu16_epi32(_mm_unpacklo_epi64(a, c));
        for (int j = 0; j < 4; ++j) {
          out.w[h][j] = _mm256_or_si256(out.w[h][j], _mm256_and_si256(bit_mask(words, j), bytes(16)));
        }
      }
    }
  }
};
using DecodeQ4_0 = DecodeNibbles<quant::BlockQ4_0, 3>;
using DecodeQ4_1 = DecodeNibbles<quant::BlockQ4_1, -1>;
using DecodeQ5_0 = DecodeNibbles<quant::BlockQ5_0, 4>;
using DecodeQ5_1 = DecodeNibbles<quant::BlockQ5_1, -1>;

struct DecodeIQ4_NL : SignedDecoder<quant::BlockIQ4_NL> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_pairs(halves_8(&b->d, sizeof *b), out.scale);
    const V levels = twice_16(quant::kIq4Levels);
    for (int h = 0; h < 2; ++h) {
      nibbles_32(b->qs, sizeof *b, h, out.w[h]);
      for (V& w : out.w[h]) w = _mm256_shuffle_epi8(levels, w);
    }
  }
};

struct DecodeIQ4_XS : SignedDecoder<quant::BlockIQ4_XS> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const uint64_t scales = spread_nibbles(read<uint32_t>(b->scales_l)) |
                            _pdep_u64(read<uint16_t>(&b->scales_h), 0x3030303030303030u);
    const V shifted = _mm256_sub_epi32(_mm256_cvtepu8_epi32(from_u64(scales)), _mm256_set1_epi32(32));
    put_pairs(_mm256_mul_ps(half(&b->d), floats(shifted)), out.scale);
    const V levels = twice_16(quant::kIq4Levels);
    for (int h = 0; h < 2; ++h) {
      nibbles_32(b->qs, 16, h, out.w[h]);
      for (V& w : out.w[h]) w = _mm256_shuffle_epi8(levels, w);
    }
  }
};

struct DecodeMXFP4 : SignedDecoder<quant::BlockMXFP4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const V exponents = _mm256_setr_epi32(b[0].e, b[1].e, b[2].e, b[3].e, b[4].e, b[5].e, b[6].e, b[7].e);
    const V normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 23);
    const V subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
    const V small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents);
    put_pairs(_mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small)), out.scale);
    const V levels = twice_16(quant::kMxfp4Levels);
    for (int h = 0; h < 2; ++h) {
      nibbles_32(b->qs, sizeof *b, h, out.w[h]);
      for (V& w : out.w[h]) w = _mm256_shuffle_epi8(levels, w);
    }
  }
};

struct DecodeQ8_0 : SignedDecoder<quant::BlockQ8_0> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_pairs(halves_8(&b->d, sizeof *b), out.scale);
    for (int h = 0; h < 2; ++h) {
      const Block* p = b + 4 * h;
      transpose(pair(load16(p[0].qs), load16(p[2].qs)), pair(load16(p[0].qs + 16), load16(p[2].qs + 16)),
                pair(load16(p[1].qs), load16(p[3].qs)), pair(load16(p[1].qs + 16), load16(p[3].qs + 16)),
                out.w[h]);
    }
  }
};

// ---- codebooks ----

/// Half h of a block of 32 entries of 8 values; entry(e) is its word.
template <typename Entry>
HWY_INLINE void put_entries(int h, Entry entry, V* w) {
  for (int e = 16 * h; e < 16 * h + 2; ++e) {
    const V a = _mm256_setr_epi64x(entry(e), entry(e + 2), entry(e + 8), entry(e + 10));
    const V b = _mm256_setr_epi64x(entry(e + 4), entry(e + 6), entry(e + 12), entry(e + 14));
    w[2 * (e % 2)] = shuffle_words<0x88>(a, b);
    w[2 * (e % 2) + 1] = shuffle_words<0xdd>(a, b);
  }
}

/// 64 + level becomes 64 - level where the value's bit is set.
HWY_INLINE void negate(V words, V* w) {
  for (int j = 0; j < 4; ++j) {
    const V mask = bit_mask(words, j);
    w[j] = _mm256_add_epi8(_mm256_xor_si256(w[j], mask), _mm256_and_si256(mask, bytes(129)));
  }
}

/// Two patterns of 7 bits in each lane, in bits 0 .. 6 and 8 .. 14, get their eighth bits.
HWY_INLINE V even_signs(V sevens) {
  const V odd = _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0, 0,
                                 -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
  const V low = _mm256_shuffle_epi8(odd, _mm256_and_si256(sevens, bytes(15)));
  const V high = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(sevens, 4), bytes(15)));
  return _mm256_or_si256(sevens, _mm256_xor_si256(low, high));
}

/// The signs of half h of IQ2_XXS and IQ3_XXS from 8 words, each for two lanes: four patterns of 7 bits.
HWY_INLINE V signs_of_words(V eight_words, int h) {
  const V at = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(4 * h));
  const V words = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(eight_words, at),
                                    _mm256_setr_epi32(0, 14, 0, 14, 0, 14, 0, 14));
  const V first = _mm256_and_si256(words, _mm256_set1_epi32(0x7f));
  const V second = _mm256_and_si256(_mm256_slli_epi32(words, 1), _mm256_set1_epi32(0x7f00));
  return even_signs(_mm256_or_si256(first, second));
}

/// (0.5 + s) * step, exact
HWY_INLINE F half_steps(V s, float step) {
  return _mm256_mul_ps(_mm256_add_ps(floats(s), _mm256_set1_ps(0.5f)), _mm256_set1_ps(step));
}
/// (1 + 2 s) * step, exact
HWY_INLINE F odd_steps(V s, float step) {
  return _mm256_mul_ps(floats(_mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1))),
                       _mm256_set1_ps(step));
}
/// Scales of 16 nibbles, IQ2_XS and IQ2_S.
template <typename Block>
HWY_INLINE void put_scales_iq2(const Block& b, Decoded& out) {
  for (int h = 0; h < 2; ++h) {
    const uint64_t nibbles = spread_nibbles(read<uint32_t>(b.scales + 4 * h));
    out.scale[h] = _mm256_mul_ps(half_steps(_mm256_cvtepu8_epi32(from_u64(nibbles)), 0.25f), half(&b.d));
  }
}

struct DecodeIQ2_XXS : UnsignedDecoder<quant::BlockIQ2_XXS, 6, 1> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const V words = _mm256_permute4x64_epi64(shuffle_words<0xdd>(load32(b->qs), load32(b->qs + 16)), 0xd8);
    put_pairs(_mm256_mul_ps(half_steps(_mm256_srli_epi32(words, 28), 0.25f), half(&b->d)), out.scale);
    const auto* index = reinterpret_cast<const uint8_t*>(b->qs);
    for (int h = 0; h < 2; ++h) {
      const auto entry = [index](int e) {
        return static_cast<long long>(kIq2XxsGrid[index[8 * (e / 4) + e % 4]]);
      };
      put_entries(h, entry, out.w[h]);
      negate(signs_of_words(words, h), out.w[h]);
    }
  }
};

struct DecodeIQ2_XS : UnsignedDecoder<quant::BlockIQ2_XS, 6, 1> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_scales_iq2(*b, out);
    for (int h = 0; h < 2; ++h) {
      const auto entry = [b](int e) { return static_cast<long long>(kIq2XsGrid[b->qs[e] & 511]); };
      put_entries(h, entry, out.w[h]);
      const V lanes = load32(b->qs + 16 * h);
      const V first = _mm256_and_si256(_mm256_srli_epi32(lanes, 9), _mm256_set1_epi32(0x7f));
      const V second = _mm256_and_si256(_mm256_srli_epi32(lanes, 17), _mm256_set1_epi32(0x7f00));
      negate(even_signs(_mm256_or_si256(first, second)), out.w[h]);
    }
  }
};

struct DecodeIQ2_S : UnsignedDecoder<quant::BlockIQ2_S, 6, 1> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    put_scales_iq2(*b, out);
    for (int h = 0; h < 2; ++h) {
      const auto entry = [b](int e) {
        return static_cast<long long>(kIq2SGrid[b->qs[e] | ((b->qh[e / 4] << (8 - 2 * (e % 4))) & 0x300)]);
      };
      put_entries(h, entry, out.w[h]);
      negate(_mm256_cvtepu16_epi32(load16(b->signs + 16 * h)), out.w[h]);
    }
  }
};

struct DecodeIQ3_XXS : UnsignedDecoder<quant::BlockIQ3_XXS, 6, 1> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const V words = load32(b->scales_and_signs);
    put_pairs(_mm256_mul_ps(half_steps(_mm256_srli_epi32(words, 28), 0.5f), half(&b->d)), out.scale);
    for (int h = 0; h < 2; ++h) {
      for (int j = 0; j < 4; ++j) {
        const auto entry = [b, h, j](int lane) {
          return static_cast<int>(kIq3XxsGrid[b->qs[32 * h + 4 * lane + j]]);
        };
        out.w[h][j] =
            _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7));
      }
      negate(signs_of_words(words, h), out.w[h]);
    }
  }
};

struct DecodeIQ3_S : UnsignedDecoder<quant::BlockIQ3_S, 6, 1> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const V scales = _mm256_cvtepu8_epi32(from_u64(spread_nibbles(read<uint32_t>(b->scales))));
    put_pairs(_mm256_mul_ps(odd_steps(scales, 1.0f), half(&b->d)), out.scale);
    const auto ninth = read<uint64_t>(b->qh);
    for (int h = 0; h < 2; ++h) {
      for (int j = 0; j < 4; ++j) {
        const auto entry = [b, h, j, ninth](int lane) {
          const int e = 32 * h + 4 * lane + j;
          return static_cast<int>(kIq3SGrid[b->qs[e] | ((ninth >> e) & 1) << 8]);
        };
        out.w[h][j] =
            _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7));
      }
      negate(_mm256_cvtepu16_epi32(load16(b->signs + 16 * h)), out.w[h]);
    }
  }
};

struct DecodeIQ1_M : UnsignedDecoder<quant::BlockIQ1_M, 4, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const auto words = read<uint64_t>(b->scales);
    const auto d = static_cast<uint16_t>(_pext_u64(words, 0xf000f000f000f000u));
    const uint64_t threes = _pext_u64(words, 0x0fff0fff0fff0fffu);
    for (int h = 0; h < 2; ++h) {
      const uint64_t scales = _pdep_u64(threes >> (24 * h), 0x0707070707070707u);
      out.scale[h] = _mm256_mul_ps(odd_steps(_mm256_cvtepu8_epi32(from_u64(scales)), 0.125f), half(&d));
      const auto entry = [b](int e) {
        return static_cast<long long>(kIq1Grid[b->qs[e] | ((b->qh[e / 2] << (8 - 4 * (e % 2))) & 0xf00)]);
      };
      put_entries(h, entry, out.w[h]);
    }
  }
};

struct DecodeIQ1_S : UnsignedDecoder<quant::BlockIQ1_S, 4, 4> {
  static HWY_INLINE void decode(const Block* b, Decoded& out) {
    const V qh = _mm256_cvtepu16_epi32(load16(b->qh));
    const V scales = _mm256_and_si256(_mm256_srli_epi32(qh, 12), _mm256_set1_epi32(7));
    put_pairs(_mm256_mul_ps(odd_steps(scales, 0.125f), half(&b->d)), out.scale);
    for (int h = 0; h < 2; ++h) {
      const auto entry = [b](int e) {
        return static_cast<long long>(
            kIq1Grid[b->qs[e] | ((b->qh[e / 4] >> (3 * (e % 4))) & 7) << 8 | (b->qh[e / 4] >> 4 & 0x800)]);
      };
      put_entries(h, entry, out.w[h]);
    }
  }
};
