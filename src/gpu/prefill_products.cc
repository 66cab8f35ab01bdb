#include "gpu/prefill_products.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "gpu/kernels/prefill_floats.h"
#include "model/router.h"

namespace redlite::gpu {
namespace {

template <typename K>
void launch_floats(const Launcher& launcher, const PrefillFloatsParams& params, int n_tiles,
                   bool early_start) {
  launcher.launch<K>({.grid = {K::row_blocks(params.w.planes.rows), static_cast<uint32_t>(n_tiles),
                               K::token_blocks(params.lanes)},
                      .threads = K::kThreads,
                      .dynamic_shared = K::shared_bytes(params.lanes),
                      .early_start = early_start},
                     params);
}

template <int kUnitStrips, int kMinStrips, bool kGrouped>
void launch_kernel(const Launcher& launcher, const PrefillProductParams& params, int n_tiles,
                   bool early_start) {
  using K = PrefillProduct<kUnitStrips, kMinStrips, kGrouped>;
  const size_t books = has_codebook(params.w.type) ? sizeof(Codebooks) : 0;
  launcher.launch<K>(
      {.grid = {K::row_blocks(params.w.planes.rows, params.row_groups), static_cast<uint32_t>(n_tiles)},
       .threads = K::kThreads,
       .dynamic_shared = 2 * sizeof(PrefillSlab<kMinStrips>) + books,
       .early_start = early_start},
      params);
}

}  // namespace

bool can_have_row_groups(quant::Type type) {
  return quant::info(type).block_values >= 64 && min_strips(type) != 1;
}

PrefillProductParams product_params(const DeviceMatrix& w, const QuantizedRows& x, const TokenTiles& tokens,
                                    int n_tiles, const ProductOutput& out, const Codebooks* codebooks) {
  const int unit_values = std::min(64, static_cast<int>(quant::info(w.type).block_values));
  // As many segments as make their sum's pairs whole.
  const auto segments = static_cast<int>(std::bit_ceil(static_cast<unsigned>(w.segments)));
  const int slabs = std::max(1, segments * w.lanes * unit_values / kSlabValues);
  // A block begins with the codebooks and a slab for which all wait: with short rows it has several groups of
  // them, as long as there are blocks for every multiprocessor and more.
  constexpr int kManySlabs = 8, kManyBlocks = 1024, kRows = PrefillProduct<4, 0, true>::kRows;
  int row_groups = can_have_row_groups(w.type) ? std::max(1, kManySlabs / slabs) : 1;
  while (row_groups > 1 && w.planes.rows / (row_groups * kRows) * n_tiles < kManyBlocks) row_groups /= 2;
  return {.w = w,
          .x = x,
          .tokens = tokens,
          .units = w.planes.cols / unit_values,
          .slabs = slabs,
          .row_groups = row_groups,
          .out = out,
          .codebooks = codebooks};
}

void launch_product(const Launcher& launcher, const PrefillProductParams& params, int n_tiles,
                    bool early_start) {
  const bool of_32 = params.units * 32 == params.w.planes.cols;
  const int mins = min_strips(params.w.type);
  const auto launch = [&]<int kUnitStrips, int kMinStrips, bool kGrouped>() {
    launch_kernel<kUnitStrips, kMinStrips, kGrouped>(launcher, params, n_tiles, early_start);
  };
  if (params.row_groups > 1) {
    RL_CHECK(can_have_row_groups(params.w.type), "{} groups of rows", params.row_groups);
    mins == 2 ? launch.template operator()<4, 2, true>() : launch.template operator()<4, 0, true>();
  } else if (of_32) {
    mins == 2 ? launch.template operator()<2, 2, false>() : launch.template operator()<2, 0, false>();
  } else if (mins == 1) {
    launch.template operator()<4, 1, false>();
  } else {
    mins == 2 ? launch.template operator()<4, 2, false>() : launch.template operator()<4, 0, false>();
  }
}

void prefill_product(const Launcher& launcher, const DeviceMatrix& w, const ProductInput& x,
                     const TokenTiles& tokens, int n_tiles, const ProductOutput& out,
                     const Codebooks* codebooks, bool early_start) {
  using quant::Type;
  if (quant::info(w.type).block_values == 1) {
    const PrefillFloatsParams params{
        .w = w, .x = x.floats, .x_stride = x.stride, .tokens = tokens, .out = out, .lanes = w.lanes};
    if (w.type == Type::F32)
      return launch_floats<PrefillFloats<Type::F32, 4>>(launcher, params, n_tiles, early_start);
    if (w.type == Type::F16)
      return launch_floats<PrefillFloats<Type::F16, 8>>(launcher, params, n_tiles, early_start);
    RL_CHECK(w.type == Type::BF16, "type {}", static_cast<int>(w.type));
    return launch_floats<PrefillFloats<Type::BF16, 8>>(launcher, params, n_tiles, early_start);
  }
  launch_product(launcher, product_params(w, x.rounded, tokens, n_tiles, out, codebooks), n_tiles,
                 early_start);
}

void router_product(const Launcher& launcher, const float* router, int n_rows, const float* x, int n,
                    const TokenTiles& tokens, float* logits) {
  PrefillFloatsParams params{.w = {},
                             .x = x,
                             .x_stride = n,
                             .tokens = tokens,
                             .out = {logits, nullptr, n_rows},
                             .lanes = model::kRouterLanes};
  params.w.type = quant::Type::F32;
  params.w.planes.data = reinterpret_cast<const std::byte*>(router);
  params.w.planes.rows = n_rows;
  params.w.planes.cols = n;
  launch_floats<PrefillFloats<quant::Type::F32, 1>>(launcher, params,
                                                    (tokens.n + kTileTokens - 1) / kTileTokens, true);
}

}  // namespace redlite::gpu
