// Decoders of 256 weights at a time for AVX-512 with VNNI and VBMI. Included inside the region that enables
// these instructions, by avx512_dl.cc only. avx512_dl_tables.h explains the constants.

using V = __m512i;
using F = __m512;

/// 256 weights: bytes w + offset where ActivationBlock has its q, and the factors of the 16 lanes.
struct Decoded {
  V w[4];
  F scale;
  F min;  ///< only for types with mins
};

template <typename T>
HWY_INLINE V reg(const Register<T>& r) {
  return _mm512_load_si512(r.data());
}
template <typename T>
HWY_INLINE T read(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
HWY_INLINE V load(const void* p) {
  return _mm512_loadu_si512(p);
}
HWY_INLINE V bytes(int b) {
  return _mm512_set1_epi8(static_cast<char>(b));
}
/// a binary16 in all lanes, as binary32
HWY_INLINE F half(const void* p) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(read<int16_t>(p)));
}
HWY_INLINE F lanes_of(V integers) {
  return _mm512_cvtepi32_ps(integers);
}
/// a where the mask's bit is set, else b
HWY_INLINE V select(V mask, V a, V b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
/// (a & mask) | b
HWY_INLINE V and_or(V a, V mask, V b) {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xea);
}
HWY_INLINE V broadcast8(const void* p) {
  return _mm512_set1_epi64(read<int64_t>(p));
}
HWY_INLINE V broadcast4(const void* p) {
  return _mm512_set1_epi32(read<int32_t>(p));
}

/// A bit of structure that all decoders share: kBlocks blocks of 256 values are decoded at once, stored with
/// an offset of 2^kOffsetBits (none if negative).
template <typename BlockType, int kOffset, int kBlocksAtOnce = 1>
struct DecoderOf {
  using Block = BlockType;
  static constexpr int kBlocks = kBlocksAtOnce;
  static constexpr int kOffsetBits = kOffset;
  static constexpr bool kMins = quant::has_min(Block::kType);
};

// ---- K types ----

/// 8 scales and mins of 6 bits, each for two lanes.
HWY_INLINE void scales_k4(const uint8_t* packed, V& scales, V& mins) {
  const V first = broadcast8(packed), second = broadcast4(packed + 8);
  const V first_mask = reg(kK4FirstMask), second_mask = reg(kK4SecondMask);
  scales = and_or(_mm512_multishift_epi64_epi8(reg(kK4ScaleFirst), first), first_mask,
                  _mm512_and_si512(_mm512_multishift_epi64_epi8(reg(kK4ScaleSecond), second), second_mask));
  mins = and_or(_mm512_multishift_epi64_epi8(reg(kK4MinFirst), first), first_mask,
                _mm512_and_si512(_mm512_multishift_epi64_epi8(reg(kK4MinSecond), second), second_mask));
}

struct DecodeQ4_K : DecoderOf<quant::BlockQ4_K, -1> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    V scales, mins;
    scales_k4(b->scales, scales, mins);
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(scales));
    out->min = _mm512_mul_ps(half(&b->dmin), lanes_of(mins));
    const V low = load(b->qs), high = load(b->qs + 64);
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_permutex2var_epi32(low, reg(kK4Words[j]), high);
      out->w[j] = _mm512_and_si512(_mm512_srlv_epi32(words, reg(kK4Shift)), bytes(15));
    }
  }
};

struct DecodeQ5_K : DecoderOf<quant::BlockQ5_K, -1> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    V scales, mins;
    scales_k4(b->scales, scales, mins);
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(scales));
    out->min = _mm512_mul_ps(half(&b->dmin), lanes_of(mins));
    const V low = load(b->qs), high = load(b->qs + 64);
    const V fifth = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b->qh)));
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_permutex2var_epi32(low, reg(kK4Words[j]), high);
      const V nibbles = _mm512_and_si512(_mm512_srlv_epi32(words, reg(kK4Shift)), bytes(15));
      const V bits =
          _mm512_rorv_epi32(_mm512_permutexvar_epi32(reg(kHighWords[j]), fifth), reg(kK5HighRotate));
      out->w[j] = and_or(bits, bytes(16), nibbles);
    }
  }
};

struct DecodeQ6_K : DecoderOf<quant::BlockQ6_K, 5> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V scales = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b->scales)));
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(scales));
    const V low0 = load(b->ql), low1 = load(b->ql + 64), high = load(b->qh);
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_permutex2var_epi32(low0, reg(kK6LowWords[j]), low1);
      const V nibbles = _mm512_and_si512(_mm512_srlv_epi32(words, reg(kK6LowShift)), bytes(15));
      const V bits = _mm512_rorv_epi32(_mm512_permutexvar_epi32(reg(kK2Words[j]), high), reg(kK6HighRotate));
      out->w[j] = and_or(bits, bytes(0x30), nibbles);
    }
  }
};

struct DecodeQ2_K : DecoderOf<quant::BlockQ2_K, -1> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V packed = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b->scales)));
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(_mm512_and_si512(packed, _mm512_set1_epi32(15))));
    out->min = _mm512_mul_ps(half(&b->dmin), lanes_of(_mm512_srli_epi32(packed, 4)));
    const V qs = load(b->qs);
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_permutexvar_epi32(reg(kK2Words[j]), qs);
      out->w[j] = _mm512_and_si512(_mm512_srlv_epi32(words, reg(kK2Shift)), bytes(3));
    }
  }
};

struct DecodeQ3_K : DecoderOf<quant::BlockQ3_K, 2> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V low = _mm512_multishift_epi64_epi8(reg(kK3ScaleLow), broadcast8(b->scales));
    const V high = _mm512_multishift_epi64_epi8(reg(kK3ScaleHigh), broadcast4(b->scales + 8));
    const V scales = and_or(high, _mm512_set1_epi32(0x30), _mm512_and_si512(low, _mm512_set1_epi32(0x0f)));
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(_mm512_sub_epi32(scales, _mm512_set1_epi32(32))));
    const V qs = load(b->qs);
    const V third = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b->hmask)));
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_srlv_epi32(_mm512_permutexvar_epi32(reg(kK2Words[j]), qs), reg(kK2Shift));
      const V bits =
          _mm512_rorv_epi32(_mm512_permutexvar_epi32(reg(kHighWords[j]), third), reg(kK3HighRotate));
      out->w[j] = and_or(bits, bytes(4), _mm512_and_si512(words, bytes(3)));
    }
  }
};

// ---- nibbles of 32 values in 16 bytes ----

HWY_INLINE __m128i load16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
HWY_INLINE __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
/// Four times 16 bytes, `stride` apart.
HWY_INLINE V load_4x16(const uint8_t* p, size_t stride) {
  V v = _mm512_castsi128_si512(load16(p));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load16(p + stride));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load16(p + 2 * stride));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load16(p + 3 * stride));
}
/// Eight binary16, `stride` bytes apart, each in two lanes.
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
  return _mm512_permutexvar_ps(reg(kTwice), _mm512_castps256_ps512(_mm256_cvtph_ps(v)));
}

/// w[j]: a nibble in the low bits of each byte; above it other bits.
HWY_INLINE void spread_nibbles(const uint8_t* qs, size_t stride, V* w) {
  const V low = load_4x16(qs, stride), high = load_4x16(qs + 4 * stride, stride);
  for (int j = 0; j < 4; ++j) {
    const V words = _mm512_permutex2var_epi32(low, reg(kNibbleWords[j]), high);
    w[j] = _mm512_srlv_epi32(words, reg(kNibbleShift));
  }
}

template <typename BlockType, int kOffset>
struct DecodeNibbles : DecoderOf<BlockType, kOffset> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const BlockType*>(src);
    out->scale = halves_8(&b->d, sizeof *b);
    if constexpr (requires { b->m; }) {
      out->min = _mm512_sub_ps(_mm512_set1_ps(-0.0f), halves_8(&b->m, sizeof *b));
    }
    spread_nibbles(b->qs, sizeof *b, out->w);
    for (V& w : out->w) w = _mm512_and_si512(w, bytes(15));
    if constexpr (requires { b->qh; }) {
      constexpr int kStride = sizeof *b;
      const __m256i at = _mm256_setr_epi32(0, kStride, 2 * kStride, 3 * kStride, 4 * kStride, 5 * kStride,
                                           6 * kStride, 7 * kStride);
      const V bits =
          _mm512_cvtepu32_epi64(_mm256_i32gather_epi32(reinterpret_cast<const int*>(b->qh), at, 1));
      for (int j = 0; j < 4; ++j) {
        out->w[j] = and_or(_mm512_multishift_epi64_epi8(reg(kBitToBit4[j]), bits), bytes(16), out->w[j]);
      }
    }
  }
};
using DecodeQ4_0 = DecodeNibbles<quant::BlockQ4_0, 3>;
using DecodeQ4_1 = DecodeNibbles<quant::BlockQ4_1, -1>;
using DecodeQ5_0 = DecodeNibbles<quant::BlockQ5_0, 4>;
using DecodeQ5_1 = DecodeNibbles<quant::BlockQ5_1, -1>;

struct DecodeIQ4_NL : DecoderOf<quant::BlockIQ4_NL, 7> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    out->scale = halves_8(&b->d, sizeof *b);
    spread_nibbles(b->qs, sizeof *b, out->w);
    for (V& w : out->w) w = _mm512_permutexvar_epi8(w, reg(kIq4Values));
  }
};

struct DecodeMXFP4 : DecoderOf<quant::BlockMXFP4, 4> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    // Exponents from the eight blocks' first bytes, each in two lanes.
    const V exponents =
        _mm512_maskz_permutex2var_epi8(0x1111111111111111u, load(src), reg(kMxfp4Exponents), load(src + 64));
    const V normal = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)), 23);
    const V subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), exponents);
    const __mmask16 small = _mm512_cmplt_epu32_mask(exponents, _mm512_set1_epi32(2));
    out->scale = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, subnormal));
    spread_nibbles(b->qs, sizeof *b, out->w);
    for (V& w : out->w) w = _mm512_permutexvar_epi8(w, reg(kMxfp4Values));
  }
};

struct DecodeIQ4_XS : DecoderOf<quant::BlockIQ4_XS, 7> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V low = _mm512_srlv_epi32(broadcast4(b->scales_l), reg(kPairNibbleShift));
    const V high = _mm512_rorv_epi32(broadcast4(&b->scales_h), reg(kIq4HighRotate));
    const V scales = and_or(high, _mm512_set1_epi32(0x30), _mm512_and_si512(low, _mm512_set1_epi32(0x0f)));
    out->scale = _mm512_mul_ps(half(&b->d), lanes_of(_mm512_sub_epi32(scales, _mm512_set1_epi32(32))));
    const V first = load(b->qs), second = load(b->qs + 64);
    for (int j = 0; j < 4; ++j) {
      const V words = _mm512_permutex2var_epi32(first, reg(kNibbleWords[j]), second);
      out->w[j] = _mm512_permutexvar_epi8(_mm512_srlv_epi32(words, reg(kNibbleShift)), reg(kIq4Values));
    }
  }
};

struct DecodeQ8_0 : DecoderOf<quant::BlockQ8_0, 7> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    out->scale = halves_8(&b->d, sizeof *b);
    V t[4];
    for (int k = 0; k < 4; ++k) {
      const V low = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[2 * k].qs)));
      const V v =
          _mm512_inserti64x4(low, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[2 * k + 1].qs)), 1);
      t[k] = _mm512_xor_si512(v, bytes(0x80));
    }
    // A transpose of dwords: w[j] lane 4 k + q = t[k] dword 4 q + j.
    for (int j = 0; j < 4; ++j) {
      const V low = _mm512_permutex2var_epi32(t[0], reg(kQ8Words[j]), t[1]);
      const V high = _mm512_permutex2var_epi32(t[2], reg(kQ8Words[j]), t[3]);
      out->w[j] = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    }
  }
};

// ---- codebooks of 2 bits a value ----

/// The byte of a plane that each index stands for: 7 bits choose in a pair of registers, `which` has further
/// bits of the index as masks.
template <int kTables>
HWY_INLINE V look_up(const std::array<Register<uint8_t>, kTables>& plane, V index, const __mmask64* which) {
  if constexpr (kTables == 2) {
    return _mm512_permutex2var_epi8(reg(plane[0]), index, reg(plane[1]));
  } else {
    V found[kTables / 2];
    for (int t = 0; t < kTables / 2; ++t) {
      found[t] = _mm512_permutex2var_epi8(reg(plane[2 * t]), index, reg(plane[2 * t + 1]));
    }
    for (int bit = 0, n = kTables / 2; n > 1; ++bit, n /= 2) {
      for (int t = 0; t < n / 2; ++t) {
        found[t] = _mm512_mask_blend_epi8(which[bit], found[2 * t], found[2 * t + 1]);
      }
    }
    return found[0];
  }
}

/// w + offset of two blocks from a byte for each of their 64 groups of 8 values: two planes of the codes'
/// bits and the signs, in the order of kEvenThenOdd. Bits of the same value are brought together in a byte by
/// an affine transformation, whose matrix is a 64-bit lane: here two bytes each of signs and of both planes,
/// for the lanes that its results are in.
HWY_INLINE void put_iq2(V low, V high, V signs, const std::array<Register<uint8_t>, 2>& bit_of_value,
                        Decoded* out) {
  const V codes[2] = {_mm512_unpacklo_epi16(low, high), _mm512_unpackhi_epi16(low, high)};
  const V sign_pairs[2] = {_mm512_unpacklo_epi16(signs, signs), _mm512_unpackhi_epi16(signs, signs)};
  for (int b = 0; b < 2; ++b) {
    const V planes[2] = {_mm512_unpacklo_epi32(sign_pairs[b], codes[b]),
                         _mm512_unpackhi_epi32(sign_pairs[b], codes[b])};
    for (int j = 0; j < 4; ++j) {
      const V bits = _mm512_gf2p8affine_epi64_epi8(reg(bit_of_value[j % 2]), planes[j / 2], 0);
      out[b].w[j] =
          _mm512_permutexvar_epi8(_mm512_and_si512(bits, _mm512_set1_epi64(kIq2OwnBits)), reg(kIq2Values));
    }
  }
}

/// (0.5 + s) * d / 4 for s in the low 4 bits of each lane
HWY_INLINE F iq2_scale(V s, const void* d) {
  return _mm512_mul_ps(_mm512_permutexvar_ps(s, _mm512_load_ps(kIq2Steps.data())), half(d));
}

HWY_INLINE V even_then_odd(V v) {
  return _mm512_multishift_epi64_epi8(reg(kEvenThenOdd), v);
}

template <int kImmediate>
HWY_INLINE V shuffle_words(V a, V b) {
  return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kImmediate));
}

struct DecodeIQ2_XXS : DecoderOf<quant::BlockIQ2_XXS, 6, 2> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V a_qs = load(b[0].qs), b_qs = load(b[1].qs);
    // In each 128-bit lane q: block A's groups 2 q and 2 q + 1, then block B's.
    const V index = even_then_odd(shuffle_words<0x88>(a_qs, b_qs));
    const V signs_and_scale = shuffle_words<0xdd>(a_qs, b_qs);
    const __mmask64 which = _mm512_movepi8_mask(index);
    const V low = look_up<4>(kIq2XxsLow, index, &which);
    const V high = look_up<4>(kIq2XxsHigh, index, &which);
    const V sevens = _mm512_multishift_epi64_epi8(reg(kEightSevens), signs_and_scale);
    put_iq2(low, high, _mm512_and_si512(sevens, bytes(0x7f)), kBitOrParity, out);
    const V scale = _mm512_srli_epi32(signs_and_scale, 28);
    out[0].scale = iq2_scale(_mm512_unpacklo_epi32(scale, scale), &b[0].d);
    out[1].scale = iq2_scale(_mm512_unpackhi_epi32(scale, scale), &b[1].d);
  }
};

/// A nibble for each lane in its low bits.
HWY_INLINE V lane_nibbles(const uint8_t* scales) {
  return _mm512_multishift_epi64_epi8(reg(kLaneNibble), broadcast8(scales));
}

struct DecodeIQ2_XS : DecoderOf<quant::BlockIQ2_XS, 6, 2> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V a_qs = load(b[0].qs), b_qs = load(b[1].qs);
    const V low_byte = _mm512_set1_epi16(255);
    const V index = even_then_odd(
        _mm512_packus_epi16(_mm512_and_si512(a_qs, low_byte), _mm512_and_si512(b_qs, low_byte)));
    const V upper =
        even_then_odd(_mm512_packus_epi16(_mm512_srli_epi16(a_qs, 8), _mm512_srli_epi16(b_qs, 8)));
    const __mmask64 which[2] = {_mm512_movepi8_mask(index), _mm512_test_epi8_mask(upper, bytes(1))};
    const V low = look_up<8>(kIq2XsLow, index, which);
    const V high = look_up<8>(kIq2XsHigh, index, which);
    put_iq2(low, high, _mm512_and_si512(_mm512_srli_epi16(upper, 1), bytes(0x7f)), kBitOrParity, out);
    out[0].scale = iq2_scale(lane_nibbles(b[0].scales), &b[0].d);
    out[1].scale = iq2_scale(lane_nibbles(b[1].scales), &b[1].d);
  }
};

/// Four 64-bit words of each of two blocks, alternating.
HWY_INLINE V interleave(const void* a, const void* b) {
  const V va = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(a)));
  const V vb = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(b)));
  return _mm512_permutex2var_epi64(va, reg(kInterleaveQwords), vb);
}

struct DecodeIQ2_S : DecoderOf<quant::BlockIQ2_S, 6, 2> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V index = even_then_odd(interleave(b[0].qs, b[1].qs));
    const V signs = even_then_odd(interleave(b[0].signs, b[1].signs));
    const V both_high = _mm512_mask_set1_epi64(broadcast8(b[0].qh), 0xaa, read<int64_t>(b[1].qh));
    const V upper = _mm512_multishift_epi64_epi8(reg(kIq2SHigh), both_high);
    const __mmask64 which[3] = {_mm512_movepi8_mask(index), _mm512_test_epi8_mask(upper, bytes(1)),
                                _mm512_test_epi8_mask(upper, bytes(2))};
    const V low = look_up<16>(kIq2SLow, index, which);
    const V high = look_up<16>(kIq2SHighPlane, index, which);
    put_iq2(low, high, signs, kBit, out);
    out[0].scale = iq2_scale(lane_nibbles(b[0].scales), &b[0].d);
    out[1].scale = iq2_scale(lane_nibbles(b[1].scales), &b[1].d);
  }
};

// ---- codebooks of 3 bits a value ----

HWY_INLINE void put_iq3(V low, V high, V signs, const Register<uint8_t>& values, V* w) {
  const V low_half = _mm512_set1_epi32(0xffff);
  const V first = select(low_half, low, _mm512_slli_epi32(high, 16));
  const V second = select(low_half, _mm512_srli_epi32(low, 16), high);
  for (int j = 0; j < 4; ++j) {
    const V code = _mm512_multishift_epi64_epi8(reg(kPick3[j]), j < 2 ? first : second);
    const V sign = _mm512_multishift_epi64_epi8(reg(kBitToBit3[j]), signs);
    w[j] = _mm512_permutexvar_epi8(select(bytes(7), code, sign), reg(values));
  }
}

/// Eight dwords, each in two lanes.
HWY_INLINE V twice_8(const void* p) {
  const V v = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_permutexvar_epi32(reg(kTwice), v);
}

struct DecodeIQ3_XXS : DecoderOf<quant::BlockIQ3_XXS, 6> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V index = load(b->qs);
    const __mmask64 which = _mm512_movepi8_mask(index);
    const V words = twice_8(b->scales_and_signs);
    const V signs = look_up<2>(kEvenSigns, _mm512_multishift_epi64_epi8(reg(kFourSevens), words), nullptr);
    put_iq3(look_up<4>(kIq3XxsLow, index, &which), look_up<4>(kIq3XxsHigh, index, &which), signs,
            kIq3XxsValues, out->w);
    const F steps = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 28), _mm512_load_ps(kIq3XxsSteps.data()));
    out->scale = _mm512_mul_ps(steps, half(&b->d));
  }
};

struct DecodeIQ3_S : DecoderOf<quant::BlockIQ3_S, 6> {
  HWY_INLINE void operator()(const std::byte* src, Decoded* out) const {
    const auto* b = reinterpret_cast<const Block*>(src);
    const V index = load(b->qs);
    const __mmask64 which[2] = {_mm512_movepi8_mask(index), read<uint64_t>(b->qh)};
    put_iq3(look_up<8>(kIq3SLow, index, which), look_up<8>(kIq3SHigh, index, which), twice_8(b->signs),
            kIq3SValues, out->w);
    const V scales = _mm512_and_si512(_mm512_srlv_epi32(broadcast4(b->scales), reg(kPairNibbleShift)),
                                      _mm512_set1_epi32(15));
    const F odd = _mm512_fmadd_ps(lanes_of(scales), _mm512_set1_ps(2), _mm512_set1_ps(1));
    out->scale = _mm512_mul_ps(odd, half(&b->d));
  }
};

// ---- IQ1: 2048 entries, with the shift 4096, are too many for registers; they are gathered ----

HWY_INLINE V iq1_entries(V indices) {
  return _mm512_i64gather_epi64(indices, kIq1Grid.data(), 8);
}
/// w + offset of a block from its 32 indices, which have the shift's sign as their twelfth bit.
HWY_INLINE void put_iq1(V indices, V* w) {
  const V zero = _mm512_setzero_si512();
  // Lanes 4 q and 4 q + 1 of all 128-bit lanes q, and lanes 4 q + 2 and 4 q + 3: two indices in each.
  const V first = _mm512_unpacklo_epi32(indices, zero), second = _mm512_unpackhi_epi32(indices, zero);
  const V low = _mm512_set1_epi64(0xffff);
  const V a[2] = {iq1_entries(_mm512_and_si512(first, low)), iq1_entries(_mm512_srli_epi64(first, 16))};
  const V b[2] = {iq1_entries(_mm512_and_si512(second, low)), iq1_entries(_mm512_srli_epi64(second, 16))};
  for (int e = 0; e < 2; ++e) {
    w[2 * e] = shuffle_words<0x88>(a[e], b[e]);
    w[2 * e + 1] = shuffle_words<0xdd>(a[e], b[e]);
  }
}

/// (1 + 2 s) * d / 8 for s in the low 3 bits of each lane. (A table would be one more load; the gathers leave
/// no room for it.)
HWY_INLINE F iq1_scale(V three_bits, float d) {
  const V s = _mm512_and_si512(three_bits, _mm512_set1_epi32(7));
  const F eighths = _mm512_fmadd_ps(lanes_of(s), _mm512_set1_ps(0.25f), _mm512_set1_ps(0.125f));
  return _mm512_mul_ps(eighths, _mm512_set1_ps(d));
}

/// The decoders of IQ1 read the binary16 scales of several blocks at once.
struct DecodeIQ1_M : DecoderOf<quant::BlockIQ1_M, 4> {
  /// Of n <= 8 blocks.
  static HWY_INLINE __m128i scales(const Block* b, int n) {
    const V at = _mm512_load_si512(kIq1MStride.data());
    const V words = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), static_cast<__mmask8>((1 << n) - 1),
                                                at, b->scales, 1);
    const V low = and_or(_mm512_srli_epi64(words, 24), _mm512_set1_epi64(0xf0),
                         _mm512_and_si512(_mm512_srli_epi64(words, 12), _mm512_set1_epi64(0x0f)));
    const V high = and_or(_mm512_srli_epi64(words, 36), _mm512_set1_epi64(0xf00),
                          _mm512_and_si512(_mm512_srli_epi64(words, 48), _mm512_set1_epi64(0xf000)));
    return _mm512_cvtepi64_epi16(_mm512_or_si512(low, high));
  }
  static HWY_INLINE void decode(const Block& b, float d, Decoded* out) {
    const V nibbles = _mm512_cvtepu8_epi32(load16(b.qh));  // of entries 2 L and 2 L + 1
    const V upper = and_or(_mm512_slli_epi32(nibbles, 20), _mm512_set1_epi32(0x0f000000),
                           _mm512_and_si512(_mm512_slli_epi32(nibbles, 8), _mm512_set1_epi32(0x0f00)));
    put_iq1(_mm512_or_si512(_mm512_cvtepu8_epi16(load32(b.qs)), upper), out->w);
    out->scale = iq1_scale(_mm512_multishift_epi64_epi8(reg(kIq1MScale), broadcast8(b.scales)), d);
  }
};

struct DecodeIQ1_S : DecoderOf<quant::BlockIQ1_S, 4> {
  static HWY_INLINE __m128i scales(const Block* b, int n) {
    const V at = _mm512_load_si512(kIq1SStride.data());
    return _mm512_cvtepi64_epi16(_mm512_mask_i64gather_epi64(
        _mm512_setzero_si512(), static_cast<__mmask8>((1 << n) - 1), at, &b->d, 1));
  }
  static HWY_INLINE void decode(const Block& b, float d, Decoded* out) {
    const V words = _mm512_cvtepu16_epi64(load16(b.qh));  // a group in each 64-bit lane
    const V high =
        _mm512_and_si512(_mm512_multishift_epi64_epi8(reg(kIq1SHigh), words), _mm512_set1_epi16(0x0700));
    const V shift = _mm512_multishift_epi64_epi8(reg(kIq1SShift), words);
    put_iq1(
        _mm512_or_si512(_mm512_cvtepu8_epi16(load32(b.qs)), and_or(shift, _mm512_set1_epi16(0x0800), high)),
        out->w);
    out->scale = iq1_scale(_mm512_srli_epi32(_mm512_or_si512(words, _mm512_slli_epi64(words, 32)), 12), d);
  }
};
