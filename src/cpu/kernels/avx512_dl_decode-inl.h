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

// ---- codebooks ----
//
// Their decoders work in three steps: `index` and `look_up` for blocks ahead, `finish` for those whose
// products follow. A block takes far longer to decode than the processor looks ahead in the program, so that
// steps of one block after another would wait for each other (docs/what-did-not-work.md).

constexpr int kStreamBlocks = 8;
/// The scales of n <= kStreamBlocks blocks, each twice. (They are put together in general registers, which
/// have nothing else to do.)
template <typename Decoder>
HWY_INLINE F stream_scales(const typename Decoder::Block* b, int n) {
  uint64_t words[2] = {};
  if (n == kStreamBlocks) {
    for (int i = 0; i < 8; ++i) words[i / 4] |= Decoder::scale_of(b[i]) << (16 * (i % 4));
  } else {
    for (int i = 0; i < n; ++i) words[i / 4] |= Decoder::scale_of(b[i]) << (16 * (i % 4));
  }
  const __m256 scales =
      _mm256_cvtph_ps(_mm_set_epi64x(static_cast<long long>(words[1]), static_cast<long long>(words[0])));
  return _mm512_permutexvar_ps(reg(kTwice), _mm512_castps256_ps512(scales));
}

/// The bytes of two planes that each index stands for: 6 bits of it choose in a register, bits 6, 7, ... are
/// given as masks. (A merging permute of one register is one instruction for the port of permutes, one of two
/// registers is two and another.)
template <int kTables>
HWY_INLINE void look_up(const Register<uint8_t>* low, const Register<uint8_t>* high, V index,
                        const __mmask64* bits, V& out_low, V& out_high) {
  if constexpr (kTables > 8) {  // more would not fit the mask registers, and the merges wait for each other
    V upper_low, upper_high;
    look_up<kTables / 2>(low, high, index, bits, out_low, out_high);
    look_up<kTables / 2>(low + kTables / 2, high + kTables / 2, index, bits, upper_low, upper_high);
    out_low = _mm512_mask_mov_epi8(out_low, bits[3], upper_low);
    out_high = _mm512_mask_mov_epi8(out_high, bits[3], upper_high);
  } else {
    out_low = _mm512_permutexvar_epi8(index, reg(low[0]));
    out_high = _mm512_permutexvar_epi8(index, reg(high[0]));
    __mmask64 which[kTables];
    for (int t = 1; t < kTables; ++t) {
      const int top = t >= 4 ? 2 : (t >= 2 ? 1 : 0), rest = t - (1 << top);
      which[t] = rest == 0 ? bits[top] : _kand_mask64(bits[top], which[rest]);
      out_low = _mm512_mask_permutexvar_epi8(out_low, which[t], index, reg(low[t]));
      out_high = _mm512_mask_permutexvar_epi8(out_high, which[t], index, reg(high[t]));
    }
  }
}
/// Bits 7 and 6 of all bytes.
HWY_INLINE __mmask64 bit_7(V v) {
  return _mm512_movepi8_mask(v);
}
HWY_INLINE __mmask64 bit_6(V v) {
  return _mm512_movepi8_mask(_mm512_add_epi8(v, v));
}

// ---- codebooks of 2 bits a value ----

/// Of two blocks: a byte for each of their 64 groups of 8 values from two planes of the codes' bits, and the
/// signs, in the order of kEvenThenOdd; for the scales what `index` left.
struct Iq2Planes {
  V low, high, signs, rest;
};

/// w + offset of two blocks. Bits of the same value are brought together in a byte by an affine
/// transformation, whose matrix is a 64-bit lane: here two bytes each of signs and of both planes, for the
/// lanes that its results are in.
HWY_INLINE void put_iq2(const Iq2Planes& p, const std::array<Register<uint8_t>, 2>& bit_of_value,
                        Decoded* out) {
  const V codes[2] = {_mm512_unpacklo_epi16(p.low, p.high), _mm512_unpackhi_epi16(p.low, p.high)};
  const V sign_pairs[2] = {_mm512_unpacklo_epi16(p.signs, p.signs), _mm512_unpackhi_epi16(p.signs, p.signs)};
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

HWY_INLINE V even_then_odd(V v) {
  return _mm512_multishift_epi64_epi8(reg(kEvenThenOdd), v);
}

template <int kImmediate>
HWY_INLINE V shuffle_words(V a, V b) {
  return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kImmediate));
}
/// (0.5 + s) / 4 for s in the low 4 bits of each lane
HWY_INLINE F iq2_steps(V s) {
  return _mm512_permutexvar_ps(s, _mm512_load_ps(kIq2Steps.data()));
}

template <typename BlockType>
struct Iq2Decoder : DecoderOf<BlockType, 6, 2> {
  static constexpr int kAhead = 1;
  using Few = Decoded;
  using LookedUp = Iq2Planes;
  static HWY_INLINE uint64_t scale_of(const BlockType& b) { return b.d; }
};

struct DecodeIQ2_XXS : Iq2Decoder<quant::BlockIQ2_XXS> {
  struct Index {
    V entries, signs_and_scale;
  };
  static HWY_INLINE Index index(const Block* b) {
    const V a_qs = load(b[0].qs), b_qs = load(b[1].qs);
    // In each 128-bit lane q: block A's groups 2 q and 2 q + 1, then block B's.
    return {even_then_odd(shuffle_words<0x88>(a_qs, b_qs)), shuffle_words<0xdd>(a_qs, b_qs)};
  }
  static HWY_INLINE Iq2Planes look_up(const Index& of) {
    const __mmask64 bits[2] = {bit_6(of.entries), bit_7(of.entries)};
    Iq2Planes out;
    dl::look_up<4>(kIq2XxsLow.data(), kIq2XxsHigh.data(), of.entries, bits, out.low, out.high);
    const V sevens = _mm512_multishift_epi64_epi8(reg(kEightSevens), of.signs_and_scale);
    out.signs = _mm512_and_si512(sevens, bytes(0x7f));
    out.rest = _mm512_srli_epi32(of.signs_and_scale, 28);
    return out;
  }
  static HWY_INLINE void finish(const Iq2Planes& p, const Block*, const float* d, Decoded* out) {
    put_iq2(p, kBitOrParity, out);
    const F scales = _mm512_mul_ps(iq2_steps(p.rest), _mm512_broadcast_f32x4(_mm_load_ps(d)));
    out[0].scale = _mm512_unpacklo_ps(scales, scales);
    out[1].scale = _mm512_unpackhi_ps(scales, scales);
  }
};

/// Scales of a nibble for each lane, of both blocks.
template <typename Block>
HWY_INLINE void put_lane_scales(const Block* b, const float* d, Decoded* out) {
  for (int i = 0; i < 2; ++i) {
    const V nibbles = _mm512_multishift_epi64_epi8(reg(kLaneNibble), broadcast8(b[i].scales));
    out[i].scale = _mm512_mul_ps(iq2_steps(nibbles), _mm512_set1_ps(d[2 * i]));
  }
}

struct DecodeIQ2_XS : Iq2Decoder<quant::BlockIQ2_XS> {
  struct Index {
    V entries, upper;
  };
  static HWY_INLINE Index index(const Block* b) {
    const V a_qs = load(b[0].qs), b_qs = load(b[1].qs), low_byte = _mm512_set1_epi16(255);
    return {even_then_odd(
                _mm512_packus_epi16(_mm512_and_si512(a_qs, low_byte), _mm512_and_si512(b_qs, low_byte))),
            even_then_odd(_mm512_packus_epi16(_mm512_srli_epi16(a_qs, 8), _mm512_srli_epi16(b_qs, 8)))};
  }
  static HWY_INLINE Iq2Planes look_up(const Index& of) {
    const __mmask64 bits[3] = {bit_6(of.entries), bit_7(of.entries),
                               _mm512_test_epi8_mask(of.upper, bytes(1))};
    Iq2Planes out;
    dl::look_up<8>(kIq2XsLow.data(), kIq2XsHigh.data(), of.entries, bits, out.low, out.high);
    out.signs = _mm512_and_si512(_mm512_srli_epi16(of.upper, 1), bytes(0x7f));
    return out;
  }
  static HWY_INLINE void finish(const Iq2Planes& p, const Block* b, const float* d, Decoded* out) {
    put_iq2(p, kBitOrParity, out);
    put_lane_scales(b, d, out);
  }
};

/// Four 64-bit words of each of two blocks, alternating.
HWY_INLINE V interleave(const void* a, const void* b) {
  const V va = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(a)));
  const V vb = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(b)));
  return _mm512_permutex2var_epi64(va, reg(kInterleaveQwords), vb);
}

struct DecodeIQ2_S : Iq2Decoder<quant::BlockIQ2_S> {
  struct Index {
    V entries, upper, signs;
  };
  static HWY_INLINE Index index(const Block* b) {
    const V both_high = _mm512_mask_set1_epi64(broadcast8(b[0].qh), 0xaa, read<int64_t>(b[1].qh));
    return {even_then_odd(interleave(b[0].qs, b[1].qs)),
            _mm512_multishift_epi64_epi8(reg(kIq2SHigh), both_high),
            even_then_odd(interleave(b[0].signs, b[1].signs))};
  }
  static HWY_INLINE Iq2Planes look_up(const Index& of) {
    const __mmask64 bits[4] = {bit_6(of.entries), bit_7(of.entries),
                               _mm512_test_epi8_mask(of.upper, bytes(1)),
                               _mm512_test_epi8_mask(of.upper, bytes(2))};
    Iq2Planes out;
    dl::look_up<16>(kIq2SLow.data(), kIq2SHighPlane.data(), of.entries, bits, out.low, out.high);
    out.signs = of.signs;
    return out;
  }
  static HWY_INLINE void finish(const Iq2Planes& p, const Block* b, const float* d, Decoded* out) {
    put_iq2(p, kBit, out);
    put_lane_scales(b, d, out);
  }
};

// ---- codebooks of 3 bits a value ----

/// Of a block: for each of its 64 groups of 4 values two of them as nibbles, the sign above the code, and the
/// other two; for the scales what `index` left.
struct Iq3Planes {
  V low, high, rest;
};

/// Merges the signs, 32 bits for each lane of 64, into the planes.
HWY_INLINE void add_signs(V signs, Iq3Planes& p) {
  const V nibbles = _mm512_multishift_epi64_epi8(reg(kNibbles), signs);
  p.low =
      _mm512_or_si512(p.low, _mm512_gf2p8affine_epi64_epi8(nibbles, _mm512_set1_epi64(kBits01ToSigns), 0));
  p.high =
      _mm512_or_si512(p.high, _mm512_gf2p8affine_epi64_epi8(nibbles, _mm512_set1_epi64(kBits23ToSigns), 0));
}
HWY_INLINE void put_iq3(const Iq3Planes& p, const Register<uint8_t>& values, V* w) {
  const V low_half = _mm512_set1_epi32(0xffff);
  const V first = select(low_half, p.low, _mm512_slli_epi32(p.high, 16));
  const V second = select(low_half, _mm512_srli_epi32(p.low, 16), p.high);
  for (int j = 0; j < 4; ++j) {
    w[j] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(reg(kPick4[j]), j < 2 ? first : second),
                                   reg(values));
  }
}

/// Eight dwords, each in two lanes.
HWY_INLINE V twice_8(const void* p) {
  const V v = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_permutexvar_epi32(reg(kTwice), v);
}

struct DecodeIQ3_XXS : DecoderOf<quant::BlockIQ3_XXS, 6> {
  static constexpr int kAhead = 1;
  using Few = Decoded;
  using LookedUp = Iq3Planes;
  struct Index {
    V entries, words;
  };
  static HWY_INLINE uint64_t scale_of(const Block& b) { return b.d; }
  static HWY_INLINE Index index(const Block* b) { return {load(b->qs), twice_8(b->scales_and_signs)}; }
  static HWY_INLINE Iq3Planes look_up(const Index& of) {
    const __mmask64 bits[2] = {bit_6(of.entries), bit_7(of.entries)};
    Iq3Planes out;
    dl::look_up<4>(kIq3XxsLow.data(), kIq3XxsHigh.data(), of.entries, bits, out.low, out.high);
    const V sevens = _mm512_multishift_epi64_epi8(reg(kFourSevens), of.words);
    add_signs(_mm512_gf2p8affine_epi64_epi8(sevens, _mm512_set1_epi64(kEvenParity), 0), out);
    out.rest = _mm512_srli_epi32(of.words, 28);
    return out;
  }
  static HWY_INLINE void finish(const Iq3Planes& p, const Block*, const float* d, Decoded* out) {
    put_iq3(p, kIq3XxsValues, out->w);
    const F steps = _mm512_permutexvar_ps(p.rest, _mm512_load_ps(kIq3XxsSteps.data()));
    out->scale = _mm512_mul_ps(steps, _mm512_set1_ps(*d));
  }
};

struct DecodeIQ3_S : DecoderOf<quant::BlockIQ3_S, 6> {
  static constexpr int kAhead = 1;
  using Few = Decoded;
  using LookedUp = Iq3Planes;
  struct Index {
    V entries, signs;
    __mmask64 ninth;
  };
  static HWY_INLINE uint64_t scale_of(const Block& b) { return b.d; }
  static HWY_INLINE Index index(const Block* b) {
    return {load(b->qs), twice_8(b->signs), read<uint64_t>(b->qh)};
  }
  static HWY_INLINE Iq3Planes look_up(const Index& of) {
    const __mmask64 bits[3] = {bit_6(of.entries), bit_7(of.entries), of.ninth};
    Iq3Planes out;
    dl::look_up<8>(kIq3SLow.data(), kIq3SHigh.data(), of.entries, bits, out.low, out.high);
    add_signs(of.signs, out);
    return out;
  }
  static HWY_INLINE void finish(const Iq3Planes& p, const Block* b, const float* d, Decoded* out) {
    put_iq3(p, kIq3SValues, out->w);
    const V scales = _mm512_srlv_epi32(broadcast4(b->scales), reg(kPairNibbleShift));
    const F steps = _mm512_permutexvar_ps(scales, _mm512_load_ps(kIq3SSteps.data()));
    out->scale = _mm512_mul_ps(steps, _mm512_set1_ps(*d));
  }
};

// ---- IQ1: 2048 entries, with the shift 4096, are too many for registers; they are gathered ----

/// Entries by their indices, which have the shift's sign as the twelfth bit. A gather merges into its
/// result's register: without the zeros it would wait for that of the block before.
HWY_INLINE V iq1_entries(V index) {
  __mmask16 all = 0xffff;
  asm("" : "+k"(all));  // else the compiler finds that the mask is full and leaves the zeros out
  return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, index, kIq1Nibbles.data(), 4);
}
/// (1 + 2 s) * d / 64 for s in the low 3 bits of each lane
HWY_INLINE F iq1_scale(V s, const float* d) {
  return _mm512_mul_ps(_mm512_permutexvar_ps(s, _mm512_load_ps(kIq1Steps.data())), _mm512_set1_ps(*d));
}

template <typename BlockType>
struct Iq1Decoder : DecoderOf<BlockType, 4> {
  static constexpr int kAhead = 2;
  using Few = Nibbles;
};
struct Iq1Pairs {
  V even, odd, rest;
};
template <typename Decoder>
HWY_INLINE void finish_wide(const Iq1Pairs& p, const typename Decoder::Block* b, const float* d,
                            Decoded* out) {
  Nibbles from;
  Decoder::finish(p, b, d, &from);
  for (int e = 0; e < 2; ++e) {
    const V pairs = from.pairs[e];
    out->w[2 * e] = _mm512_permutexvar_epi8(low_nibbles(pairs), reg(kIq1Values));
    out->w[2 * e + 1] = _mm512_permutexvar_epi8(low_nibbles(_mm512_srli_epi16(pairs, 4)), reg(kIq1Values));
  }
  out->scale = _mm512_mul_ps(from.scale, _mm512_set1_ps(8));
}

/// Both read 64 bytes from the beginning of a block.
struct DecodeIQ1_M : Iq1Decoder<quant::BlockIQ1_M> {
  using LookedUp = Iq1Pairs;
  using Index = Iq1Pairs;
  static HWY_INLINE uint64_t scale_of(const Block& b) {
    return _pext_u64(read<uint64_t>(b.scales), 0xf000f000f000f000u);
  }
  static HWY_INLINE Index index(const Block* b) {
    // In each 64-bit lane: 4 low bytes of indices, two bytes of nibbles with zeros behind each.
    const V x = _mm512_maskz_permutexvar_epi8(0x5f5f5f5f5f5f5f5fu, reg(kIq1MBytes), load(b));
    const V even = _mm512_multishift_epi64_epi8(reg(kIq1MEven), x);
    return {_mm512_and_si512(even, _mm512_set1_epi32(0xfff)), _mm512_multishift_epi64_epi8(reg(kIq1MOdd), x),
            x};
  }
  static HWY_INLINE LookedUp look_up(const Index& of) {
    return {iq1_entries(of.even), iq1_entries(of.odd), of.rest};
  }
  static HWY_INLINE void finish(const Iq1Pairs& p, const Block* b, const float* d, Nibbles* out) {
    out->pairs[0] = p.even;
    out->pairs[1] = p.odd;
    out->scale = iq1_scale(_mm512_multishift_epi64_epi8(reg(kIq1MScale), broadcast8(b->scales)), d);
  }
  static HWY_INLINE void finish(const Iq1Pairs& p, const Block* b, const float* d, Decoded* out) {
    finish_wide<DecodeIQ1_M>(p, b, d, out);
  }
};

struct DecodeIQ1_S : Iq1Decoder<quant::BlockIQ1_S> {
  using LookedUp = Iq1Pairs;
  using Index = Iq1Pairs;
  static HWY_INLINE uint64_t scale_of(const Block& b) { return b.d; }
  static HWY_INLINE Index index(const Block* b) {
    // In each 64-bit lane, a group: 4 low bytes of indices, the word with the rest, zeros.
    const V x = _mm512_maskz_permutexvar_epi8(0x3f3f3f3f3f3f3f3fu, reg(kIq1SBytes), load(b));
    const V scale = _mm512_multishift_epi64_epi8(reg(kIq1SScale), x);  // in bits 0 .. 2, sign in 3 and 11
    const V sign = _mm512_and_si512(scale, _mm512_set1_epi32(0x800)), low = _mm512_set1_epi32(0x7ff);
    return {and_or(_mm512_multishift_epi64_epi8(reg(kIq1SEven), x), low, sign),
            and_or(_mm512_multishift_epi64_epi8(reg(kIq1SOdd), x), low, sign), scale};
  }
  static HWY_INLINE LookedUp look_up(const Index& of) {
    return {iq1_entries(of.even), iq1_entries(of.odd), of.rest};
  }
  static HWY_INLINE void finish(const Iq1Pairs& p, const Block*, const float* d, Nibbles* out) {
    out->pairs[0] = p.even;
    out->pairs[1] = p.odd;
    out->scale = iq1_scale(p.rest, d);
  }
  static HWY_INLINE void finish(const Iq1Pairs& p, const Block* b, const float* d, Decoded* out) {
    finish_wide<DecodeIQ1_S>(p, b, d, out);
  }
};
