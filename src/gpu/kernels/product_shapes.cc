// How products are shared out between blocks, and what these have in shared memory.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {
namespace {

size_t books_of(const DeviceMatrix& m) {
  return book_bytes(m.type);
}

/// What a row costs, about: its bytes, and the instructions that unpack them.
double row_cost(const DeviceMatrix& m) {
  double cost = 0;
  for (const uint32_t bytes : m.row_bytes) cost += bytes;
  return takes_floats(m.type) ? cost : cost + 24.0 * m.planes.cols / 64;
}

/// Of a block's weights that are staged at a time, unless a few rows are more: several blocks share a
/// multiprocessor.
constexpr uint32_t kChunkBytes = 28 << 10;

/// Halves `rows` until what they take is little enough, and notes the chunks of `all` rows; bytes(rows): of a
/// chunk.
template <typename Bytes>
int choose_chunk(ProductNeeds& needs, int all, int step, Bytes bytes) {
  int rows = all;
  while (rows > step && bytes(rows) > kChunkBytes) rows = (rows / 2 + step - 1) / step * step;
  needs.chunk = std::max<size_t>(needs.chunk, bytes(rows));
  needs.chunks = std::max(needs.chunks, (all + rows - 1) / rows);
  return rows;
}

}  // namespace

Projection make_projection(std::span<const DeviceMatrix> matrices, bool norm, int multiprocessors) {
  RL_CHECK(!matrices.empty() && matrices.size() <= kMaxProjectParts, "{} matrices", matrices.size());
  constexpr double kMuch = 96 << 10;  // of a block
  double total = 0;
  for (const DeviceMatrix& m : matrices) total += row_cost(m) * m.planes.rows;
  // Two blocks on a multiprocessor leave room for those of the next kernel, which then has its first weights
  // when its turn comes; with a norm a block has longer to wait for, and a third one helps. A large product
  // runs for so long that this does not matter.
  double blocks = (norm ? 3.0 : 2.0) * multiprocessors;
  if (total / blocks > kMuch) blocks *= 2;

  Projection out;
  ProductNeeds needs{.n = matrices.front().planes.cols, .norm = norm};
  int row = 0;
  for (const DeviceMatrix& m : matrices) {
    const double share = std::max(1.0, std::floor(blocks * row_cost(m) * m.planes.rows / total));
    const int step = rows_of_step(m);
    const int steps = static_cast<int>(std::ceil(m.planes.rows / share / step));
    ProjectPart& part = out.parts[out.n_parts++];
    const int block_rows = steps * step;
    const int chunk_rows =
        choose_chunk(needs, block_rows, step, [&](int rows) { return staged_bytes(m, rows); });
    part = {.matrix = m,
            .first_block = out.n_blocks,
            .block_rows = block_rows,
            .chunk_rows = chunk_rows,
            .out = row};
    out.n_blocks += (m.planes.rows + part.block_rows - 1) / part.block_rows;
    row += m.planes.rows;
    needs.n_sums = std::max(needs.n_sums, part.block_rows * m.segments);
    (takes_floats(m.type) ? needs.floats : needs.integers) = true;
    needs.books[0] = std::max(needs.books[0], books_of(m));
  }
  out.layout = product_layout(needs);
  return out;
}

ProductLayout ExpertsGateUp::layout(const LayerExperts& experts, int n) {
  ProductNeeds needs{.n = n};
  const auto add = [&](const ExpertMatrices& m) {
    const bool alike = m.gate.type == m.up.type;
    for (const DeviceMatrix* matrix : {&m.gate, &m.up})
      (takes_floats(matrix->type) ? needs.floats : needs.integers) = true;
    needs.n_sums = std::max(needs.n_sums, (m.gate.segments + m.up.segments) * kRows);
    needs.books[0] = std::max(needs.books[0], books_of(m.gate));
    if (!alike) needs.books[1] = std::max(needs.books[1], books_of(m.up));
  };
  add(experts.slot);
  if (experts.has_shared) add(experts.shared);
  // A block has rows of one expert: how many are staged at a time is each one's own matter.
  const auto chunk_of = [&](const ExpertMatrices& m) {
    return choose_chunk(needs, kRows, 1,
                        [&](int rows) { return staged_bytes(m.gate, rows) + staged_bytes(m.up, rows); });
  };
  const int chunk_rows = chunk_of(experts.slot),
            shared_rows = experts.has_shared ? chunk_of(experts.shared) : 0;
  uint32_t second_stage = staged_bytes(experts.slot.gate, chunk_rows);
  if (experts.has_shared)
    second_stage = std::max(second_stage, staged_bytes(experts.shared.gate, shared_rows));
  const uint32_t up_bytes = std::max(staged_bytes(experts.slot.up, chunk_rows),
                                     experts.has_shared ? staged_bytes(experts.shared.up, shared_rows) : 0);
  needs.chunk = std::max<size_t>(needs.chunk, second_stage + up_bytes);
  ProductLayout out = product_layout(needs);
  out.chunk_rows = chunk_rows;
  out.shared_chunk_rows = shared_rows;
  out.second_stage = second_stage;
  return out;
}

ProductLayout ExpertsDown::layout(const LayerExperts& experts, int hidden_stride) {
  ProductNeeds needs{.n_vectors = experts.n_all(), .n = hidden_stride};
  const auto add = [&](const DeviceMatrix& m, int n_matrices) {
    (takes_floats(m.type) ? needs.floats : needs.integers) = true;
    needs.n_sums += m.segments * n_matrices * kRows;
  };
  add(experts.slot.down, experts.n_used);
  needs.books[0] = books_of(experts.slot.down);
  if (experts.has_shared) {
    add(experts.shared.down, 1);
    needs.books[1] = books_of(experts.shared.down);
  }
  const auto routed_bytes = [&](int rows) {
    return static_cast<uint32_t>(experts.n_used) * staged_bytes(experts.slot.down, rows);
  };
  const int chunk_rows = choose_chunk(needs, kRows, 1, [&](int rows) {
    return routed_bytes(rows) + (experts.has_shared ? staged_bytes(experts.shared.down, rows) : 0);
  });
  ProductLayout out = product_layout(needs);
  out.chunk_rows = out.shared_chunk_rows = chunk_rows;
  out.second_stage = routed_bytes(chunk_rows);
  return out;
}

}  // namespace redlite::gpu
