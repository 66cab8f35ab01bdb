// The kernels that multiply with weights, in one file: what they have in common, the products of 23 types, is
// compiled once.
#include "gpu/kernels/block.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/rows.h"

namespace redlite::gpu {

struct Project::Shared {
  float sums[kBlockWarps];
  float rows[kMaxTileRows];
};
struct ExpertsGateUp::Shared {
  float gate[kRows], up[kRows];
};
struct ExpertsDown::Shared {
  float parts[kMaxExperts][kRows];
};

namespace {

/// The input of a token into shared memory.
RL_DEVICE void load(const ProjectInput& in, int token, float* x, float* scratch) {
  const size_t at = static_cast<size_t>(token) * in.n;
  const float* from = in.x + at;
  const int thread = simt::thread_index(), lane = simt::lane_index();
  if (in.kind == ProjectInput::Kind::Plain) {
    for (int i = thread; i < in.n; i += kBlockThreads) x[i] = from[i];
  } else if (in.kind == ProjectInput::Kind::Norm) {
    const float scale = rms_scale(from, in.n, in.eps, scratch);
    for (int i = thread; i < in.n; i += kBlockThreads) {
      x[i] = from[i] * scale * in.weight[i];
      if (in.shown != nullptr && simt::block_index().x == 0) in.shown[at + i] = x[i];
    }
  } else {
    const float* proj = in.proj + static_cast<size_t>(token) * in.proj_stride;
    for (int head = simt::warp_index(); head < in.n / in.dim; head += kBlockWarps) {
      const float* o = from + head * in.dim;
      const float* z = proj + in.heads[head].z;
      float squares = 0;
      for (int i = lane; i < in.dim; i += simt::kWarpSize) squares = simt::fma(o[i], o[i], squares);
      squares = simt::warp_sum(squares);
      const float scale = simt::reciprocal_sqrt(squares / static_cast<float>(in.dim) + in.eps);
      for (int i = lane; i < in.dim; i += simt::kWarpSize)
        x[head * in.dim + i] = o[i] * scale * in.weight[i] * silu(z[i]);
    }
  }
}

}  // namespace

RL_RUN void Project::run(const Params& p, Shared& shared) {
  const int token = static_cast<int>(simt::block_index().y);
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  simt::let_next_start();
  // The first weights are on their way while the kernel before ends.
  int tile = static_cast<int>(simt::block_index().x), part = 0;
  while (part + 1 < p.n_parts && tile >= p.parts[part + 1].first_tile) ++part;
  if (thread < kMaxPlanes)
    prefetch_rows(p.parts[part].matrix, thread, (tile - p.parts[part].first_tile) * p.tile_rows, p.tile_rows);
  if (simt::skipped(p.skip)) return;

  Activations x(simt::dynamic_shared<std::byte>(), p.input.n);
  load(p.input, token, x.values, shared.sums);
  simt::sync_block();
  x.quantize();
  simt::sync_block();

  const size_t y_row = static_cast<size_t>(token) * p.y_stride;
  const int n = p.tile_rows / kBlockWarps;
  for (; tile < p.n_tiles; tile += static_cast<int>(simt::grid_size().x)) {
    while (part + 1 < p.n_parts && tile >= p.parts[part + 1].first_tile) ++part;
    const ProjectPart& at = p.parts[part];
    const int first = (tile - at.first_tile) * p.tile_rows + warp * n;
    float* rows = shared.rows + warp * n;
    multiply_rows(at.matrix, first, n, x, p.codebooks, rows);
    simt::sync_warp();
    if (lane < n && first + lane < at.matrix.planes.rows) {
      const size_t i = y_row + at.out + first + lane;
      if (p.y != nullptr) p.y[i] = rows[lane];
      if (p.residual != nullptr) p.residual[i] += rows[lane];
    }
    simt::sync_warp();
  }
}

namespace {

/// A matrix of the expert in `slot`, from that of slot 0.
RL_DEVICE DeviceMatrix in_slot(const DeviceMatrix& m, const LayerExperts& experts, int slot) {
  DeviceMatrix out = m;
  out.planes.data += experts.slot_bytes * static_cast<uint64_t>(slot);
  return out;
}

}  // namespace

RL_RUN void ExpertsGateUp::run(const Params& p, Shared& shared) {
  const int first = static_cast<int>(simt::block_index().x) * kRows;
  const int number = static_cast<int>(simt::block_index().y), token = static_cast<int>(simt::block_index().z);
  const int thread = simt::thread_index(), warp = simt::warp_index();
  if (simt::skipped(p.skip)) return;
  simt::let_next_start();  // only now: ExpertsDown looks at the slots before it waits

  const bool routed = number < p.experts.n_used;
  const int slot = routed ? p.slots[token * p.experts.n_used + number] : 0;
  const ExpertMatrices& matrices = routed ? p.experts.slot : p.experts.shared;
  const DeviceMatrix gate = in_slot(matrices.gate, p.experts, slot),
                     up = in_slot(matrices.up, p.experts, slot);
  if (first >= gate.planes.rows) return;

  Activations x(simt::dynamic_shared<std::byte>(), p.n);
  const float* from = p.input + static_cast<size_t>(token) * p.n;
  for (int i = thread; i < p.n; i += kBlockThreads) x.values[i] = from[i];
  simt::sync_block();
  x.quantize();
  simt::sync_block();

  // Half of the warps have the rows of gate, half those of up.
  constexpr int kRowsOfWarp = kRows / (kBlockWarps / 2);
  const bool has_gate = warp < kBlockWarps / 2;
  const int row = warp % (kBlockWarps / 2) * kRowsOfWarp;
  multiply_rows(has_gate ? gate : up, first + row, kRowsOfWarp, x, p.codebooks,
                (has_gate ? shared.gate : shared.up) + row);
  simt::sync_block();
  if (thread < kRows && first + thread < gate.planes.rows) {
    p.hidden[(static_cast<size_t>(token) * p.experts.n_all() + number) * p.hidden_stride + first + thread] =
        silu(shared.gate[thread]) * shared.up[thread];
  }
}

namespace {

/// The down matrix of one of a token's experts.
RL_DEVICE DeviceMatrix down_of(const ExpertsDown::Params& p, int token, int number) {
  if (number >= p.experts.n_used) return p.experts.shared.down;
  return in_slot(p.experts.slot.down, p.experts, p.slots[token * p.experts.n_used + number]);
}

}  // namespace

RL_RUN void ExpertsDown::run(const Params& p, Shared& shared) {
  const int first = static_cast<int>(simt::block_index().x) * kRows;
  const int token = static_cast<int>(simt::block_index().y);
  const int thread = simt::thread_index(), warp = simt::warp_index();
  const int n_all = p.experts.n_all();
  simt::let_next_start();
  // The slots are there (ExpertsGateUp has waited for them), the hidden values are not.
  if (thread < n_all * kMaxPlanes)
    prefetch_rows(down_of(p, token, thread / kMaxPlanes), thread % kMaxPlanes, first, kRows);
  if (simt::skipped(p.skip)) return;

  std::byte* memory = simt::dynamic_shared<std::byte>();
  const size_t stride = Activations::bytes(p.hidden_stride);
  const float* hidden = p.hidden + static_cast<size_t>(token) * n_all * p.hidden_stride;
  for (int number = 0; number < n_all; ++number) {
    const int ff =
        number < p.experts.n_used ? p.experts.slot.down.planes.cols : p.experts.shared.down.planes.cols;
    Activations x(memory + number * stride, ff);
    const float* from = hidden + number * p.hidden_stride;
    for (int i = thread; i < ff; i += kBlockThreads) x.values[i] = from[i];
  }
  simt::sync_block();
  for (int number = 0; number < n_all; ++number) {
    const int ff =
        number < p.experts.n_used ? p.experts.slot.down.planes.cols : p.experts.shared.down.planes.cols;
    Activations(memory + number * stride, ff).quantize();
  }
  simt::sync_block();

  // Pieces of kPieceRows rows of one expert, for one warp each.
  constexpr int kPieceRows = 4, kPieces = kRows / kPieceRows;
  for (int piece = warp; piece < n_all * kPieces; piece += kBlockWarps) {
    const int number = piece / kPieces, row = piece % kPieces * kPieceRows;
    const DeviceMatrix down = down_of(p, token, number);
    const Activations x(memory + number * stride, down.planes.cols);
    multiply_rows(down, first + row, kPieceRows, x, p.codebooks, shared.parts[number] + row);
  }
  simt::sync_block();
  if (thread < kRows && first + thread < p.n) {
    float sum = 0;
    const float* shares = p.shares + static_cast<size_t>(token) * n_all;
    for (int i = 0; i < n_all; ++i) sum = simt::fma(shares[i], shared.parts[i][thread], sum);
    const size_t at = static_cast<size_t>(token) * p.n + first + thread;
    p.residual[at] += sum;
    if (p.shown != nullptr) p.shown[at] = sum;
  }
}

RL_KERNEL(Project);
RL_KERNEL(ExpertsGateUp);
RL_KERNEL(ExpertsDown);

}  // namespace redlite::gpu
