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

  // The weights do not depend on earlier kernels: their way from memory begins before those have ended.
  Row row(p.w, p.books, first + in_warp, lane, lanes);
  simt::let_next_start();
  if (simt::skipped(p.skip)) return;

  const Input input{p.x, p.norm, p.norm == nullptr ? 1.0f : rms_scale(p.x, p.w.cols, p.eps, shared.sums)};
  typename Row::Activations x(simt::dynamic_shared<std::byte>(), p.w.cols);
  x.fill(p.w.cols, input);
  simt::sync_block();

  for (; first < p.w.rows; first += step) {
    const float sum = simt::warp_sum(row.dot(x, first + in_warp + step), lanes);
    if (lane == 0 && first + in_warp < p.w.rows) p.y[first + in_warp] = sum;
  }
}

#define RL_FOR_TYPE(type) RL_KERNEL(MatVec<quant::Type::type>)
RL_FOR_TYPE(F32);
RL_FOR_TYPE(F16);
RL_FOR_TYPE(BF16);
RL_FOR_TYPE(Q4_0);
RL_FOR_TYPE(Q4_1);
RL_FOR_TYPE(Q5_0);
RL_FOR_TYPE(Q5_1);
RL_FOR_TYPE(Q8_0);
RL_FOR_TYPE(Q2_K);
RL_FOR_TYPE(Q3_K);
RL_FOR_TYPE(Q4_K);
RL_FOR_TYPE(Q5_K);
RL_FOR_TYPE(Q6_K);
RL_FOR_TYPE(IQ2_XXS);
RL_FOR_TYPE(IQ2_XS);
RL_FOR_TYPE(IQ2_S);
RL_FOR_TYPE(IQ3_XXS);
RL_FOR_TYPE(IQ3_S);
RL_FOR_TYPE(IQ1_S);
RL_FOR_TYPE(IQ1_M);
RL_FOR_TYPE(IQ4_NL);
RL_FOR_TYPE(IQ4_XS);
RL_FOR_TYPE(MXFP4);

}  // namespace redlite::gpu
