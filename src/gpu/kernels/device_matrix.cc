#include "gpu/kernels/device_matrix.h"

#include <algorithm>
#include <bit>

#include "gpu/kernels/multiply.h"
#include "gpu/types.h"

namespace redlite::gpu {
namespace {

uint32_t whole_words(size_t bytes) {
  return static_cast<uint32_t>((bytes + 15) / 16 * 16);
}

/// Values a thread handles at a time.
int unit_values(quant::Type type) {
  const quant::TypeInfo& info = quant::info(type);
  if (info.block_values == 1) return static_cast<int>(16 / info.block_bytes);
  return std::min(64, static_cast<int>(info.block_values));
}

}  // namespace

DeviceMatrix device_matrix(quant::Type type, int rows, int cols, const std::byte* data) {
  DeviceMatrix out;
  out.planes = plane_matrix(type, rows, cols, data);
  const PlaneFormat& format = plane_format(type);
  for (int i = 0; i < format.n_planes; ++i)
    out.row_bytes[i] =
        static_cast<uint32_t>(format.planes[i].bytes) * static_cast<uint32_t>(cols / format.block_values);
  out.type = type;
  const int values = unit_values(type);
  const auto units = static_cast<unsigned>((cols + values - 1) / values);
  out.lanes = static_cast<int>(std::min(32u, std::bit_ceil(units)));
  if (!takes_floats(type)) out.segments = static_cast<int>((units + 31) / 32);
  return out;
}

int rows_of_warp(const DeviceMatrix& m) {
  return simt::kWarpSize / m.lanes;
}
int rows_of_step(const DeviceMatrix& m) {
  return std::max(1, kBlockWarps / m.segments) * rows_of_warp(m);
}

ProductLayout product_layout(const ProductNeeds& needs) {
  const auto n = static_cast<uint32_t>(needs.n_vectors);
  ProductLayout out{};
  out.vector_bytes = whole_words(rounded_bytes(needs.n));
  out.float_bytes = whole_words(static_cast<size_t>(needs.n) * sizeof(float));
  out.floats_at = kProductHeader;
  if (needs.integers || needs.norm) out.floats_at += n * out.vector_bytes;
  out.weights_at = out.floats_at + (needs.floats || needs.norm ? n * out.float_bytes : 0);
  out.sums_at = out.weights_at + (needs.norm ? out.float_bytes : 0);
  out.books_at[0] = out.sums_at + whole_words(static_cast<size_t>(needs.n_sums) * sizeof(float));
  out.books_at[1] = out.books_at[0] + whole_words(needs.books[0]);
  out.stage_at = out.books_at[1] + whole_words(needs.books[1]);
  out.chunk_bytes = static_cast<uint32_t>(needs.chunk);
  out.bytes = out.stage_at + out.chunk_bytes * static_cast<uint32_t>(std::min(needs.chunks, 2));
  return out;
}

size_t book_bytes(quant::Type type) {
  return 4 * size_t{book_shape(type).words()};
}

uint32_t staged_bytes(const DeviceMatrix& m, int rows) {
  if (takes_floats(m.type)) return 0;
  uint32_t bytes = 0;
  for (const uint32_t row_bytes : m.row_bytes) bytes += staged_bytes(row_bytes, rows);
  return bytes;
}

size_t rounded_bytes(int n) {
  return QuantizedActivations::bytes(n);
}

}  // namespace redlite::gpu
