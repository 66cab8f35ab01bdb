// Decoders of the codebook types for AVX-512 with VNNI and VBMI, included behind avx512_dl_decode-inl.h.
//
// They work in three steps: `index` and `look_up` for blocks ahead, `finish` for those whose
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
