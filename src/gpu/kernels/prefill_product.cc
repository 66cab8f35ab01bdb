#include "gpu/kernels/prefill_product.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/units.h"

namespace redlite::gpu {

template <int kUnitStrips, int kMinStrips, bool kGrouped>
struct PrefillProduct<kUnitStrips, kMinStrips, kGrouped>::Shared {
  PlaneMatrix w;                      // of the tile's expert
  uint32_t first_strip[kTileTokens];  // of each token's activations
  int output_row[kTileTokens];
};

namespace {

constexpr int kSumLevels = 12;  // of sums of slabs

/// Where sums of products of bytes start: the bits of 3 * 2^22, so that an integer of up to 22 bits added to
/// them is added to the value, too, and the float needs no conversion. With a weight's scale s, which has at
/// most 20 significant bits, fma(value, s, -kIntegerStartValue * s) is the integer times s, rounded once.
constexpr int32_t kIntegerStart = 0x4b400000;
constexpr float kIntegerStartValue = 0x3p22f;

/// A quad of strips in shared memory: integers, scales and mins.
struct QuadPlace {
  simt::U32x4* q;      // [4]
  simt::F32x4* scale;  // where pairs of strips share them: two scales, two mins
  simt::F32x4* min;    // where each strip has one
};

/// Unpacks quad number `quad` of one row of the weights, for each thread of the block another one; zeros
/// behind the row's last unit. Not inlined: what is alive in the caller is little, and the kernels share the
/// code of 20 types.
template <quant::Type T>
RL_NOINLINE static RL_DEVICE void unpack_quad(const PlaneMatrix& w, int units, int row, int quad,
                                              const Codebooks* books, const QuadPlace& to) {
  constexpr int kUnits = 64 / Unit<T>::kValues, kStrips = 4 / kUnits;
  const uint32_t first = static_cast<uint32_t>(row) * static_cast<uint32_t>(units);
  Unit<T> loaded[kUnits];
  RL_UNROLL
  for (int h = 0; h < kUnits; ++h) {
    const int number = quad * kUnits + h;
    loaded[h] = Unit<T>::load(w, first + static_cast<uint32_t>(number < units ? number : 0));
  }
  simt::F32x4 scale, min;
  RL_UNROLL
  for (int h = 0; h < kUnits; ++h) {
    UnitValues<Unit<T>::kValues> values;
    loaded[h].unpack(books, values);
    if (quad * kUnits + h >= units) values = {};
    RL_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      simt::U32x4 words;
      RL_UNROLL
      for (int i = 0; i < 4; ++i) words.v[i] = values.q[4 * s + i];
      to.q[h * kStrips + s] = words;
      const int strip = h * kStrips + s;
      if constexpr (Unit<T>::kMinStrips == 2) {
        if (s % 2 == 0) scale.v[strip / 2] = values.scale[s];
        if (s % 2 == 0) scale.v[2 + strip / 2] = values.min[s];
      } else {
        scale.v[strip] = values.scale[s];
        if constexpr (Unit<T>::kMinStrips == 1) min.v[strip] = values.min[s];
      }
    }
  }
  *to.scale = scale;
  if constexpr (Unit<T>::kMinStrips == 1) *to.min = min;
}

/// The same for the types that a kernel is made for.
template <quant::Type T, int kMinStrips>
RL_DEVICE inline void unpack_if(const PlaneMatrix& w, int units, int row, int quad, const Codebooks* books,
                                const QuadPlace& to) {
  if constexpr (!takes_floats(T)) {
    static_assert(Unit<T>::kMinStrips == min_strips(T));
    if constexpr (min_strips(T) == kMinStrips) unpack_quad<T>(w, units, row, quad, books, to);
  }
}

/// What a thread brings to each slab: always the same places in it.
class SlabFiller {
 public:
  RL_DEVICE SlabFiller(const PrefillProductParams& p, const PlaneMatrix& w, const uint32_t* first_strip,
                       const Codebooks* books, int first_row)
      : p_(p), w_(w), first_strip_(first_strip), books_(books) {
    row_ = first_row + simt::thread_index() / 4;
  }

  /// Brings the tokens' activations, in the background.
  template <int kMinStrips>
  RL_DEVICE void fetch(int slab, PrefillSlab<kMinStrips>& to) const {
    const int thread = simt::thread_index();
    {
      const int strip = thread % kSlabStrips, at = slab * kSlabStrips + strip;
      const bool there = at < p_.x.strips;
      RL_UNROLL
      for (int i = 0; i < kTileTokens * kSlabStrips / kBlockThreads; ++i) {
        const int token = thread / kSlabStrips + i * (kBlockThreads / kSlabStrips);
        uint8_t* q = to.x[token] + 16 * strip;
        if (there) {
          simt::copy_async16(
              q, p_.x.q + 4 * static_cast<size_t>(first_strip_[token] + static_cast<uint32_t>(at)));
        } else {
          *reinterpret_cast<simt::U32x4*>(q) = {};
        }
      }
    }
    const int token = thread / 4, first = 4 * (thread % 4), at = slab * kSlabStrips + first;
    const uint32_t from = first_strip_[token] + static_cast<uint32_t>(at);
    float* scale = &to.x_scale[token][first];
    if (at < p_.x.strips) {
      simt::copy_async16(scale, p_.x.scale + from);
      if constexpr (kMinStrips == 1) simt::copy_async16(&to.x_sum[token][first], p_.x.sum + from);
      if constexpr (kMinStrips == 2) simt::copy_async8(&to.x_sum[token][first / 2], p_.x.pair_sum + from / 2);
    } else {
      *reinterpret_cast<simt::F32x4*>(scale) = {};
      if constexpr (kMinStrips == 1) *reinterpret_cast<simt::F32x4*>(&to.x_sum[token][first]) = {};
      if constexpr (kMinStrips == 2) *reinterpret_cast<simt::F32x2*>(&to.x_sum[token][first / 2]) = {};
    }
  }

  /// Unpacks the weights of the rows that lie `more` behind the first ones.
  template <int kMinStrips>
  RL_DEVICE void unpack(int slab, int more, PrefillSlab<kMinStrips>& to) const {
    const int row = row_ + more < w_.rows ? row_ + more : w_.rows - 1;
    const int in_block = simt::thread_index() / 4, quad = simt::thread_index() % 4;
    const QuadPlace place{
        reinterpret_cast<simt::U32x4*>(to.w[in_block] + 64 * quad),
        reinterpret_cast<simt::F32x4*>(&to.w_scale[in_block][4 * quad]),
        reinterpret_cast<simt::F32x4*>(&to.w_min[kMinStrips == 1 ? in_block : 0][4 * quad])};
    switch (p_.w.type) {
#define RL_CASE(T)     \
  case quant::Type::T: \
    return unpack_if<quant::Type::T, kMinStrips>(w_, p_.units, row, 4 * slab + quad, books_, place);
      RL_FOR_EACH_TYPE(RL_CASE)
#undef RL_CASE
    }
  }

 private:
  const PrefillProductParams& p_;
  const PlaneMatrix& w_;
  const uint32_t* first_strip_;
  const Codebooks* books_;
  int row_;  // of the weights, maybe behind the last
};

/// The sums of a warp's share of a tile: 16 rows of the weights by kTiles times 8 tokens, as the tensor cores
/// give them.
constexpr int kTiles = 4;
struct Sums {
  float v[kTiles][4];
};

template <int kTilesOfWarp>
RL_DEVICE inline void add(Sums& to, const Sums& other) {
  RL_UNROLL
  for (int j = 0; j < kTilesOfWarp; ++j) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i) to.v[j][i] += other.v[j][i];
  }
}

/// Adds strips [kFirst, kEnd) of a quad to the sums. `row`: the warp's first row in the slab; its tiles of
/// tokens are tile, tile + 2, ..., kTilesOfWarp of them: known to the compiler, which then has the loads of
/// several tiles under way.
template <int kFirst, int kEnd, int kTilesOfWarp, int kMinStrips>
RL_DEVICE inline void multiply_strips(const PrefillSlab<kMinStrips>& slab, int quad, int row, int tile,
                                      Sums& sums) {
  const int lane = simt::lane_index(), group = lane / 4, t = lane % 4;
  uint32_t a[2][4];
  RL_UNROLL
  for (int h = 0; h < 2; ++h) {
    if (kFirst < 2 * h + 2 && kEnd > 2 * h)
      simt::load_matrices(a[h], &slab.w[row + lane % 16][64 * quad + 32 * h + 16 * (lane / 16)]);
  }
  constexpr int kShare = kMinStrips == 2 ? 2 : 1;  // strips that share a scale
  simt::F32x4 w_scale[2], w_min[2];
  float start[2][4];  // takes kIntegerStart off again
  RL_UNROLL
  for (int i = 0; i < 2; ++i) {
    w_scale[i] = *reinterpret_cast<const simt::F32x4*>(&slab.w_scale[row + group + 8 * i][4 * quad]);
    if constexpr (kMinStrips != 1) {
      RL_UNROLL
      for (int s = kFirst / kShare; s < kEnd / kShare; ++s)
        start[i][s] = -kIntegerStartValue * w_scale[i].v[s];
    } else {
      w_min[i] = *reinterpret_cast<const simt::F32x4*>(&slab.w_min[row + group + 8 * i][4 * quad]);
    }
  }
  RL_UNROLL
  for (int j = 0; j < kTilesOfWarp; ++j) {
    const int first = 8 * (tile + 2 * j);
    uint32_t b[4];
    simt::load_matrices(b, &slab.x[first + lane % 8][64 * quad + 16 * (lane / 8)]);
    simt::F32x4 x_scale[2], x_sum[2];
    simt::F32x2 x_pair_sum[2];
    RL_UNROLL
    for (int i = 0; i < 2; ++i) {
      x_scale[i] = *reinterpret_cast<const simt::F32x4*>(&slab.x_scale[first + 2 * t + i][4 * quad]);
      if constexpr (kMinStrips == 1)
        x_sum[i] = *reinterpret_cast<const simt::F32x4*>(&slab.x_sum[first + 2 * t + i][4 * quad]);
      if constexpr (kMinStrips == 2)
        x_pair_sum[i] = *reinterpret_cast<const simt::F32x2*>(&slab.x_sum[first + 2 * t + i][2 * quad]);
    }
    RL_UNROLL
    for (int s = kFirst; s < kEnd; ++s) {
      int32_t d[4];
      simt::multiply_s8(d, a[s / 2][2 * (s % 2)], a[s / 2][2 * (s % 2) + 1], b[s], kIntegerStart);
      RL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float dot = simt::float_of_bits(static_cast<uint32_t>(d[i]));
        float& sum = sums.v[j][i];
        const float scale = w_scale[i / 2].v[s / kShare];
        // The same bits: where each strip has a min, registers are too few for `start`.
        const float scaled = kMinStrips == 1 ? (dot - kIntegerStartValue) * scale
                                             : simt::fma(dot, scale, start[i / 2][s / kShare]);
        sum = simt::fma(scaled, x_scale[i % 2].v[s], sum);
        if constexpr (kMinStrips == 1) sum = simt::fma(-w_min[i / 2].v[s], x_sum[i % 2].v[s], sum);
        if constexpr (kMinStrips == 2)
          if (s % 2 == 1) sum = simt::fma(-w_scale[i / 2].v[2 + s / 2], x_pair_sum[i % 2].v[s / 2], sum);
      }
    }
  }
}

/// The sum of a slab.
template <int kUnitStrips, int kTilesOfWarp, int kMinStrips>
RL_DEVICE inline void multiply_tiles(const PrefillSlab<kMinStrips>& slab, int row, int tile, Sums& sums) {
  // Half a slab is all the code: a longer loop would be fetched anew for each slab.
  RL_UNROLL_BY(1)
  for (int half = 0; half < 2; ++half) {
    Sums both{};
    RL_UNROLL
    for (int q = 0; q < 2; ++q) {
      Sums one{};
      if constexpr (kUnitStrips == 4) {
        multiply_strips<0, 4, kTilesOfWarp>(slab, 2 * half + q, row, tile, one);
      } else {
        multiply_strips<0, 2, kTilesOfWarp>(slab, 2 * half + q, row, tile, one);
        Sums second{};
        multiply_strips<2, 4, kTilesOfWarp>(slab, 2 * half + q, row, tile, second);
        add<kTilesOfWarp>(one, second);
      }
      if (q == 0) {
        both = one;
      } else {
        add<kTilesOfWarp>(both, one);
      }
    }
    if (half == 0) {
      sums = both;
    } else {
      add<kTilesOfWarp>(sums, both);
    }
  }
}

/// The same for n_tiles tiles of tokens.
template <int kUnitStrips, int kMinStrips>
RL_DEVICE inline Sums multiply_slab(const PrefillSlab<kMinStrips>& slab, int row, int tile, int n_tiles) {
  Sums sums{};
  static_assert(kTiles == 4);
  switch (n_tiles) {
    case 1:
      multiply_tiles<kUnitStrips, 1>(slab, row, tile, sums);
      break;
    case 2:
      multiply_tiles<kUnitStrips, 2>(slab, row, tile, sums);
      break;
    case 3:
      multiply_tiles<kUnitStrips, 3>(slab, row, tile, sums);
      break;
    case 4:
      multiply_tiles<kUnitStrips, 4>(slab, row, tile, sums);
      break;
  }
  return sums;
}

}  // namespace

template <int kUnitStrips, int kMinStrips, bool kGrouped>
RL_RUN void PrefillProduct<kUnitStrips, kMinStrips, kGrouped>::run(const Params& p, Shared& shared) {
  using Slab = PrefillSlab<kMinStrips>;
  const int thread = simt::thread_index(), warp = simt::warp_index(), lane = simt::lane_index();
  const int row_groups = kGrouped ? p.row_groups : 1;
  const int first_row = static_cast<int>(simt::block_index().x) * row_groups * kRows;
  const int last = first_row + row_groups * kRows, end_row = last < p.w.planes.rows ? last : p.w.planes.rows;
  simt::let_next_start();
  auto* slabs = simt::dynamic_shared<Slab>();  // [2]
  const Codebooks* books = stage_codebooks(p.w.type, p.codebooks, reinterpret_cast<std::byte*>(slabs + 2));
  simt::wait_for_previous();
  ExpertTile tile;
  if (!find_tile(p.tokens, static_cast<int>(simt::block_index().y), tile)) return;

  const std::byte* data = p.w.planes.data;
  if (p.tokens.tiles != nullptr)
    data += p.tokens.slot_bytes * static_cast<uint64_t>(tile.expert - p.tokens.first_expert);
  if (thread == 0) {
    shared.w = p.w.planes;
    shared.w.data = data;
  }
  // All of the block's weights are asked for at once: slab after slab would wait for DRAM each time.
  if (p.tokens.tiles != nullptr && thread >= kTileTokens && thread < kTileTokens + kMaxPlanes) {
    const int plane = thread - kTileTokens;
    const uint64_t row_bytes = p.w.row_bytes[plane];
    const uint64_t from = static_cast<uint64_t>(first_row) * row_bytes / 16 * 16;
    const uint64_t to = (static_cast<uint64_t>(end_row) * row_bytes + 15) / 16 * 16;
    if (row_bytes != 0)
      simt::prefetch_l2(data + p.w.planes.plane[plane] + from, static_cast<uint32_t>(to - from));
  }
  if (thread < kTileTokens) {
    // Behind the last token that one once more: its results go nowhere.
    const int place = tile.first + (thread < tile.count ? thread : tile.count - 1);
    const int row = p.tokens.input_row == nullptr ? place : p.tokens.input_row[place];
    shared.first_strip[thread] = static_cast<uint32_t>(row) * static_cast<uint32_t>(p.x.strips);
    shared.output_row[thread] = p.tokens.output_row == nullptr ? place : p.tokens.output_row[place];
  }
  simt::sync_block();

  // A warp has 16 rows and every second tile of 8 tokens.
  const int row = 16 * (warp / 2), half = warp % 2;
  const int n_tiles = ((tile.count + 7) / 8 - half + 1) / 2;
  Sums stack[kSumLevels];
  const SlabFiller filler(p, shared.w, shared.first_strip, books, first_row);
  filler.fetch(0, slabs[0]);
  simt::copy_commit();
  filler.unpack(0, 0, slabs[0]);
  int done = 0;                           // slabs of the groups before
  for (int group = 0;; group += kRows) {  // the first row of those at work, of the block's
    Sums sums{};
    const bool last_group = !kGrouped || group + kRows >= end_row - first_row;
    for (int i = 0; i < p.slabs; ++i) {
      simt::copy_wait<0>();
      simt::sync_block();
      // Half of the warps unpack the next slab while the other half multiplies with this one.
      const bool more = i + 1 < p.slabs, next = more || !last_group;
      const int next_slab = more ? i + 1 : 0, next_rows = !kGrouped ? 0 : more ? group : group + kRows;
      const int turn = kGrouped ? (done + i) % 2 : i % 2;  // which of the two places has the slab at work
      if (next) {
        filler.fetch(next_slab, slabs[1 - turn]);
        simt::copy_commit();
      }
      if (next && warp < kBlockWarps / 2) filler.unpack(next_slab, next_rows, slabs[1 - turn]);
      sums = multiply_slab<kUnitStrips>(slabs[turn], row, half, n_tiles);
      // They join the sums of as many slabs that wait for them.
      int level = 0;
      for (int before = i; before % 2 == 1; before /= 2) {
        Sums joined = stack[level++];
        add<kTiles>(joined, sums);
        sums = joined;
      }
      if (more) stack[level] = sums;
      if (next && warp >= kBlockWarps / 2) filler.unpack(next_slab, next_rows, slabs[1 - turn]);
    }

    RL_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      RL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = (kGrouped ? group : 0) + row + lane / 4 + 8 * (i / 2),
                  token = 8 * (half + 2 * j) + 2 * (lane % 4) + i % 2;
        if (first_row + r >= p.w.planes.rows || token >= tile.count) continue;
        const size_t at = static_cast<size_t>(shared.output_row[token]) * static_cast<size_t>(p.out.stride) +
                          static_cast<size_t>(first_row + r);
        if (p.out.y != nullptr) p.out.y[at] = sums.v[j][i];
        if (p.out.sum != nullptr) p.out.sum[at] += sums.v[j][i];
      }
    }
    if (last_group) return;
    done += p.slabs;
  }
}

RL_KERNEL(PrefillProduct<2, 0, false>);
RL_KERNEL(PrefillProduct<2, 2, false>);
RL_KERNEL(PrefillProduct<4, 0, false>);
RL_KERNEL(PrefillProduct<4, 0, true>);
RL_KERNEL(PrefillProduct<4, 1, false>);
RL_KERNEL(PrefillProduct<4, 2, false>);
RL_KERNEL(PrefillProduct<4, 2, true>);

}  // namespace redlite::gpu
