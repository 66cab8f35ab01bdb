#include "gpu/matrix.h"

#include <algorithm>

#include "gpu/kernels/repack.h"

namespace redlite::gpu {
namespace {

constexpr uint32_t kThreads = 256;
/// What fits a multiprocessor with the registers of the products.
constexpr int kBlocksOfMultiprocessor = 4;

}  // namespace

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
