#include "gpu/kernels/matvec.h"

#include "gpu/kernels/activations.h"
#include "gpu/kernels/dot.h"
#include "gpu/kernels/units.h"

namespace redlite::gpu {

template <quant::Type T>
struct MatVec<T>::Shared {
  float sums[kBlockWarps];
};

namespace {

/// Value i of the (normalised) input.
struct Input {
  const float* x;
  const float* norm;
  float scale;
  RL_DEVICE float operator()(int i) const { return norm == nullptr ? x[i] : x[i] * scale * norm[i]; }
};

}  // namespace

template <quant::Type T>
RL_RUN void MatVec<T>::run(const Params& p, Shared& shared) {
  using Row = RowDot<T>;
  const int lanes = p.lanes, lane = simt::lane_index() % lanes;
  const int rows_of_warp = 32 / lanes;
  int first = (static_cast<int>(simt::block_index().x) * kBlockWarps + simt::warp_index()) * rows_of_warp;
  const int step = static_cast<int>(simt::grid_size().x) * kBlockWarps * rows_of_warp;
  const int in_warp = simt::lane_index() / lanes;

  // What does not depend on earlier kernels is on its way before those have ended: weights, codebooks, the
  // norm's weights.
  std::byte* memory = simt::dynamic_shared<std::byte>();
  const Codebooks* books = stage_codebooks(T, p.books, memory + Row::Activations::bytes(p.w.cols));
  Row row(p.w, books, first + in_warp, lane, lanes);
  const int n = p.w.cols;
  BlockVector norm{};
  if (p.norm != nullptr && BlockVector::holds(n)) norm.load(p.norm, n);
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  typename Row::Activations x(memory, n);
  if (BlockVector::holds(n)) {
    BlockVector input;
    input.load(p.x, n);
    if (p.norm != nullptr) input.rms_normalize(norm, n, p.eps, shared.sums);
    x.fill(n, input);
  } else {
    x.fill(n, Input{p.x, p.norm, p.norm == nullptr ? 1.0f : rms_scale(p.x, n, p.eps, shared.sums)});
  }
  simt::sync_block();

  for (; first < p.w.rows; first += step) {
    const float sum = simt::warp_sum(row.dot(x, first + in_warp + step), lanes);
    if (lane == 0 && first + in_warp < p.w.rows) p.y[first + in_warp] = sum;
  }
}

#define RL_FOR_TYPE(type) RL_KERNEL(MatVec<quant::Type::type>);
RL_FOR_EACH_TYPE(RL_FOR_TYPE)

}  // namespace redlite::gpu
