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

/// 256 weights of IQ1 as nibbles (weight + 9) / 2, with an eighth of the scale: bytes i of lane L of pair e
/// have values 16 L + 8 e + i and, above, 16 L + 8 e + 4 + i.
struct Nibbles {
  V pairs[2];
  F scale;
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
HWY_INLINE V low_nibbles(V v) {
  return _mm512_and_si512(v, bytes(15));
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
