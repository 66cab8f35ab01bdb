#include "gpu/matrix.h"

#include <algorithm>
#include <bit>

#include "gpu/kernels/matvec.h"
#include "gpu/kernels/repack.h"
#include "gpu/types.h"

namespace redlite::gpu {
namespace {

constexpr uint32_t kThreads = 256;
/// What fits a multiprocessor with the registers of the products.
constexpr int kBlocksOfMultiprocessor = 4;

/// Values a thread handles at a time.
int unit_values(quant::Type type) {
  const quant::TypeInfo& info = quant::info(type);
  if (info.block_values == 1) return static_cast<int>(16 / info.block_bytes);
  return std::min(64, static_cast<int>(info.block_values));
}

}  // namespace

int matvec_lanes(quant::Type type, int cols) {
  const int values = unit_values(type);
  const auto units = static_cast<unsigned>((cols + values - 1) / values);
  return static_cast<int>(std::min(32u, std::bit_ceil(units)));
}

void matvec(Stream& stream, const DeviceInfo& device, quant::Type type, const PlaneMatrix& w,
            const MatVecInput& input, float* y, bool early_start) {
  const int lanes = matvec_lanes(type, w.cols);
  const int rows_of_block = static_cast<int>(kThreads) / lanes;
  const int blocks = std::min((w.rows + rows_of_block - 1) / rows_of_block,
                              kBlocksOfMultiprocessor * device.multiprocessors);
  const bool plain = quant::info(type).block_values == 1;
  const auto n = static_cast<size_t>(w.cols);
  // As activations.h and dot.h lay them out.
  const size_t activations = plain ? (n + 3) / 4 * 16 : (n + 63) / 64 * 4 * 24;
  const size_t shared = activations + (has_codebook(type) ? sizeof(Codebooks) : 0);
  const Shape shape{.grid = {static_cast<uint32_t>(blocks)},
                    .threads = kThreads,
                    .dynamic_shared = shared,
                    .early_start = early_start};
  const MatVecParams params{w, input.x, input.norm, input.eps, y, input.books, input.skip, lanes};
  with_type(type, [&]<quant::Type T>() { stream.launch<MatVec<T>>(shape, params); });
}

void repack(Stream& stream, const DeviceInfo& device, quant::Type type, int rows, int cols,
            const std::byte* from, std::byte* to, const uint32_t* skip, int max_blocks, bool early_start) {
  const PlaneMatrix matrix = plane_matrix(type, rows, cols, to);
  Repack::Params params{
      .format = plane_format(type), .from = from, .to = to, .plane = {}, .blocks = 0, .skip = skip};
  std::copy(std::begin(matrix.plane), std::end(matrix.plane), params.plane);
  params.blocks = static_cast<uint32_t>(rows) * static_cast<uint32_t>(cols / params.format.block_values);
  const int tiles =
      static_cast<int>(params.blocks / static_cast<uint32_t>(Repack::tile_blocks(params.format))) + 1;
  const int most = max_blocks > 0 ? max_blocks : kBlocksOfMultiprocessor * device.multiprocessors;
  stream.launch<Repack>({.grid = {static_cast<uint32_t>(std::min(tiles, most))},
                         .threads = kThreads,
                         .early_start = early_start},
                        params);
}

}  // namespace redlite::gpu
