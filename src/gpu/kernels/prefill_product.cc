#include "gpu/kernels/prefill_product.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/units.h"

namespace redlite::gpu {

template <int kUnitStrips, bool kHasMin>
struct PrefillProduct<kUnitStrips, kHasMin>::Shared {
  PlaneMatrix w;  // of the tile's expert
  int input_row[kTileTokens];
  int output_row[kTileTokens];
};

namespace {

constexpr int kSlabStrips = 16;
constexpr int kMaxLevels = 12;  // of sums of slabs

/// The unit at `slot` of a row's order; -1: there is none.
RL_DEVICE inline int unit_at(const ProductOrder& order, int slot) {
  const int segment = slot >> order.log_lanes, leaf = slot & ((1 << order.log_lanes) - 1);
  const uint32_t lane = simt::reverse_bits(static_cast<uint32_t>(leaf)) >> 1 >> (31 - order.log_lanes);
  const int unit = static_cast<int>(lane) + (segment << order.log_lanes);
  return unit < order.units ? unit : -1;
}

/// Unpacks a quad of strips of one row of the weights, for each thread of the block another one. Not inlined:
/// what is alive in the caller is little, and the kernels share the code of 20 types.
template <quant::Type T>
RL_NOINLINE static RL_DEVICE void unpack_quad(const PlaneMatrix& w, const ProductOrder& order, int row,
                                              int quad, const Codebooks* books, uint8_t* q, float* scale,
                                              float* min) {
  constexpr int kUnits = 64 / Unit<T>::kValues;
  Unit<T> units[kUnits];
  bool there[kUnits];
  RL_UNROLL
  for (int h = 0; h < kUnits; ++h) {
    const int unit = unit_at(order, quad * kUnits + h);
    there[h] = unit >= 0;
    units[h] = Unit<T>::load(w, static_cast<uint32_t>(row) * static_cast<uint32_t>(order.units) +
                                    static_cast<uint32_t>(unit < 0 ? 0 : unit));
  }
  RL_UNROLL
  for (int h = 0; h < kUnits; ++h) {
    constexpr int kStrips = 4 / kUnits;
    UnitValues<Unit<T>::kValues> values;
    units[h].unpack(books, values);
    RL_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      simt::U32x4 words;
      RL_UNROLL
      for (int i = 0; i < 4; ++i) words.v[i] = there[h] ? values.q[4 * s + i] : 0;
      *reinterpret_cast<simt::U32x4*>(q + 16 * (h * kStrips + s)) = words;
      scale[h * kStrips + s] = there[h] ? values.scale[s] : 0;
      if constexpr (Unit<T>::kHasMin) min[h * kStrips + s] = there[h] ? values.min[s] : 0;
    }
  }
}

/// The same for the types that a kernel is made for.
template <quant::Type T, bool kHasMin>
RL_DEVICE inline void unpack_if(const PlaneMatrix& w, const ProductOrder& order, int row, int quad,
                                const Codebooks* books, uint8_t* q, float* scale, float* min) {
  if constexpr (!takes_floats(T)) {
    static_assert(Unit<T>::kHasMin == has_min(T));
    if constexpr (has_min(T) == kHasMin) unpack_quad<T>(w, order, row, quad, books, q, scale, min);
  }
}

template <bool kHasMin>
RL_DEVICE inline void unpack_slab(const PrefillProductParams& p, const PlaneMatrix& w, int first_row,
                                  int slab, const Codebooks* books, PrefillSlab<kHasMin>& to) {
  const int thread = simt::thread_index(), in_block = thread / 4, quad = thread % 4;
  const int row = first_row + in_block < w.rows ? first_row + in_block : w.rows - 1;
  uint8_t* q = to.w[in_block] + 64 * quad;
  float* scale = to.w_scale[in_block] + 4 * quad;
  float* min = to.w_min[kHasMin ? in_block : 0] + 4 * quad;
  switch (p.w.type) {
#define RL_CASE(T)     \
  case quant::Type::T: \
    return unpack_if<quant::Type::T, kHasMin>(w, p.order, row, 4 * slab + quad, books, q, scale, min);
    RL_FOR_EACH_TYPE(RL_CASE)
#undef RL_CASE
  }
}

/// Brings a slab of the tokens' activations, in the background.
template <bool kHasMin>
RL_DEVICE inline void fetch_slab(const PrefillProductParams& p, const int* input_row, int slab,
                                 PrefillSlab<kHasMin>& to) {
  for (int i = simt::thread_index(); i < kTileTokens * kSlabStrips; i += kBlockThreads) {
    const int token = i / kSlabStrips, in_slab = i % kSlabStrips;
    const int place = slab * kSlabStrips + in_slab;
    const int unit = unit_at(p.order, place >> p.order.log_unit_strips);
    uint8_t* q = to.x[token] + 16 * in_slab;
    float* scale = &to.x_scale[token][in_slab];
    float* sum = &to.x_sum[kHasMin ? token : 0][in_slab];
    if (unit < 0) {
      *reinterpret_cast<simt::U32x4*>(q) = {};
      *scale = 0;
      if constexpr (kHasMin) *sum = 0;
    } else {
      const int strip = (unit << p.order.log_unit_strips) + (place & ((1 << p.order.log_unit_strips) - 1));
      const size_t at = static_cast<size_t>(input_row[token]) * static_cast<size_t>(p.x.strips) +
                        static_cast<size_t>(strip);
      simt::copy_async16(q, p.x.q + 4 * at);
      simt::copy_async4(scale, p.x.scale + at);
      if constexpr (kHasMin) simt::copy_async4(sum, p.x.sum + at);
    }
  }
}

/// The sums of a warp's share of a tile: 16 rows of the weights by kTiles times 8 tokens, as the tensor cores
/// give them.
constexpr int kTiles = 4;
struct Sums {
  float v[kTiles][4];
};

RL_DEVICE inline void add(Sums& to, const Sums& other) {
  RL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i) to.v[j][i] += other.v[j][i];
  }
}

/// Adds strips [kFirst, kEnd) of a quad to the sums. `row`: the warp's first row in the slab; its tiles of
/// tokens are tile, tile + 2, ..., n_tiles of them.
template <int kFirst, int kEnd, bool kHasMin>
RL_DEVICE inline void multiply_strips(const PrefillSlab<kHasMin>& slab, int quad, int row, int tile,
                                      int n_tiles, Sums& sums) {
  constexpr int kOne = 0x4b400000;  // the bits of 3 * 2^22: an integer added to them is added to the value
  constexpr float kOneValue = 12582912.0f;
  const int lane = simt::lane_index(), group = lane / 4, t = lane % 4;
  uint32_t a[2][4];
  RL_UNROLL
  for (int h = 0; h < 2; ++h) {
    if (kFirst < 2 * h + 2 && kEnd > 2 * h)
      simt::load_matrices(a[h], &slab.w[row + lane % 16][64 * quad + 32 * h + 16 * (lane / 16)]);
  }
  simt::F32x4 w_scale[2], w_min[2];
  RL_UNROLL
  for (int i = 0; i < 2; ++i) {
    w_scale[i] = *reinterpret_cast<const simt::F32x4*>(&slab.w_scale[row + group + 8 * i][4 * quad]);
    if constexpr (kHasMin)
      w_min[i] = *reinterpret_cast<const simt::F32x4*>(&slab.w_min[row + group + 8 * i][4 * quad]);
  }
  RL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    if (j >= n_tiles) continue;
    const int first = 8 * (tile + 2 * j);
    uint32_t b[4];
    simt::load_matrices(b, &slab.x[first + lane % 8][64 * quad + 16 * (lane / 8)]);
    simt::F32x4 x_scale[2], x_sum[2];
    RL_UNROLL
    for (int i = 0; i < 2; ++i) {
      x_scale[i] = *reinterpret_cast<const simt::F32x4*>(&slab.x_scale[first + 2 * t + i][4 * quad]);
      if constexpr (kHasMin)
        x_sum[i] = *reinterpret_cast<const simt::F32x4*>(&slab.x_sum[first + 2 * t + i][4 * quad]);
    }
    RL_UNROLL
    for (int s = kFirst; s < kEnd; ++s) {
      int32_t d[4];
      simt::multiply_s8(d, a[s / 2][2 * (s % 2)], a[s / 2][2 * (s % 2) + 1], b[s], kOne);
      RL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float dot = simt::float_of_bits(static_cast<uint32_t>(d[i])) - kOneValue;
        float& sum = sums.v[j][i];
        sum = simt::fma(dot * x_scale[i % 2].v[s], w_scale[i / 2].v[s], sum);
        if constexpr (kHasMin) sum = simt::fma(-w_min[i / 2].v[s], x_sum[i % 2].v[s], sum);
      }
    }
  }
}

/// The sum of a slab.
template <int kUnitStrips, bool kHasMin>
RL_DEVICE inline Sums multiply_slab(const PrefillSlab<kHasMin>& slab, int row, int tile, int n_tiles) {
  Sums sums{};
  RL_UNROLL
  for (int half = 0; half < 2; ++half) {
    Sums both{};
    RL_UNROLL
    for (int q = 0; q < 2; ++q) {
      Sums one{};
      if constexpr (kUnitStrips == 4) {
        multiply_strips<0, 4>(slab, 2 * half + q, row, tile, n_tiles, one);
      } else {
        multiply_strips<0, 2>(slab, 2 * half + q, row, tile, n_tiles, one);
        Sums second{};
        multiply_strips<2, 4>(slab, 2 * half + q, row, tile, n_tiles, second);
        add(one, second);
      }
      if (q == 0) {
        both = one;
      } else {
        add(both, one);
      }
    }
    if (half == 0) {
      sums = both;
    } else {
      add(sums, both);
    }
  }
  return sums;
}

}  // namespace

template <int kUnitStrips, bool kHasMin>
RL_RUN void PrefillProduct<kUnitStrips, kHasMin>::run(const Params& p, Shared& shared) {
  using Slab = PrefillSlab<kHasMin>;
  const int thread = simt::thread_index(), warp = simt::warp_index(), lane = simt::lane_index();
  const int first_row = static_cast<int>(simt::block_index().x) * kRows;
  simt::let_next_start();
  auto* slabs = simt::dynamic_shared<Slab>();  // [2]
  const Codebooks* books = stage_codebooks(p.w.type, p.codebooks, reinterpret_cast<std::byte*>(slabs + 2));
  simt::wait_for_previous();
  ExpertTile tile;
  if (!find_tile(p.tokens, static_cast<int>(simt::block_index().y), tile)) return;

  if (thread == 0) {
    shared.w = p.w.planes;
    if (p.tokens.tiles != nullptr)
      shared.w.data += p.tokens.slot_bytes * static_cast<uint64_t>(tile.expert - p.tokens.first_expert);
  }
  if (thread < kTileTokens) {
    // Behind the last token that one once more: its results go nowhere.
    const int place = tile.first + (thread < tile.count ? thread : tile.count - 1);
    shared.input_row[thread] = p.tokens.input_row == nullptr ? place : p.tokens.input_row[place];
    shared.output_row[thread] = p.tokens.output_row == nullptr ? place : p.tokens.output_row[place];
  }
  simt::sync_block();

  // A warp has 16 rows and every second tile of 8 tokens.
  const int row = 16 * (warp / 2), half = warp % 2;
  const int n_tiles = ((tile.count + 7) / 8 - half + 1) / 2;
  Sums stack[kMaxLevels];
  Sums sums{};
  fetch_slab(p, shared.input_row, 0, slabs[0]);
  simt::copy_commit();
  unpack_slab(p, shared.w, first_row, 0, books, slabs[0]);
  for (int i = 0; i < p.order.slabs; ++i) {
    simt::copy_wait<0>();
    simt::sync_block();
    // Half of the warps unpack the next slab while the other half multiplies with this one.
    const bool next = i + 1 < p.order.slabs;
    if (next) {
      fetch_slab(p, shared.input_row, i + 1, slabs[(i + 1) % 2]);
      simt::copy_commit();
    }
    if (next && warp < kBlockWarps / 2) unpack_slab(p, shared.w, first_row, i + 1, books, slabs[(i + 1) % 2]);
    sums = multiply_slab<kUnitStrips>(slabs[i % 2], row, half, n_tiles);
    // They join the sums of as many slabs that wait for them.
    int level = 0;
    for (int before = i; before % 2 == 1; before /= 2) {
      Sums joined = stack[level++];
      add(joined, sums);
      sums = joined;
    }
    if (next) stack[level] = sums;
    if (next && warp >= kBlockWarps / 2)
      unpack_slab(p, shared.w, first_row, i + 1, books, slabs[(i + 1) % 2]);
  }

  RL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    RL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int r = first_row + row + lane / 4 + 8 * (i / 2),
                token = 8 * (half + 2 * j) + 2 * (lane % 4) + i % 2;
      if (r >= p.w.planes.rows || token >= tile.count) continue;
      const size_t at = static_cast<size_t>(shared.output_row[token]) * static_cast<size_t>(p.out.stride) +
                        static_cast<size_t>(r);
      if (p.out.y != nullptr) p.out.y[at] = sums.v[j][i];
      if (p.out.sum != nullptr) p.out.sum[at] += sums.v[j][i];
    }
  }
}

RL_KERNEL(PrefillProduct<2, false>);
RL_KERNEL(PrefillProduct<2, true>);
RL_KERNEL(PrefillProduct<4, false>);
RL_KERNEL(PrefillProduct<4, true>);

}  // namespace redlite::gpu
