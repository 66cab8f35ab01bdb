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

}  // namespace

Projection make_projection(std::span<const DeviceMatrix> matrices, bool norm, int multiprocessors) {
  RL_CHECK(!matrices.empty() && matrices.size() <= kMaxProjectParts, "{} matrices", matrices.size());
  constexpr double kMuch = 96 << 10;  // of a block
  double total = 0;
  for (const DeviceMatrix& m : matrices) total += row_cost(m) * m.planes.rows;
  // Two blocks on a multiprocessor leave room for those of the next kernel, which then has its first weights
  // when its turn comes. A large product runs for so long that this does not matter.
  double blocks = 2.0 * multiprocessors;
  if (total / blocks > kMuch) blocks *= 2;

  Projection out;
  ProductNeeds needs{.n = matrices.front().planes.cols, .norm = norm};
  int row = 0;
  for (const DeviceMatrix& m : matrices) {
    const double share = std::max(1.0, std::floor(blocks * row_cost(m) * m.planes.rows / total));
    const int step = rows_of_step(m);
    const int steps = static_cast<int>(std::ceil(m.planes.rows / share / step));
    ProjectPart& part = out.parts[out.n_parts++];
    part = {.matrix = m, .first_block = out.n_blocks, .block_rows = steps * step, .out = row};
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
  return product_layout(needs);
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
  return product_layout(needs);
}

}  // namespace redlite::gpu
