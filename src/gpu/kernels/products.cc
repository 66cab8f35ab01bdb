// The kernels that multiply with weights, in one file: what they have in common, the products of 23 types, is
// compiled once.
#include "gpu/kernels/experts.h"
#include "gpu/kernels/multiply.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/select.h"

namespace redlite::gpu {

struct Products::Shared {
  float before[kBlockThreads];  // what the results are added to
  float shares[ExpertsDown::kMaxExperts];
};

namespace {

/// The part of a projection that the block has.
RL_DEVICE inline int part_of_block(const Project::Params& p) {
  const int block = static_cast<int>(simt::block_index().x);
  int part = 0;
  while (part + 1 < p.n_parts && block >= p.parts[part + 1].first_block) ++part;
  return part;
}

/// Fills product_block() in and gives the number of this warp's job; -1: the block has nothing to do.
RL_DEVICE inline int prepare(const Project::Params& p, Products::Shared& shared) {
  const int token = static_cast<int>(simt::block_index().y), block = static_cast<int>(simt::block_index().x);
  const int thread = simt::thread_index();
  simt::let_next_start();
  const ProjectPart& at = p.parts[part_of_block(p)];
  const int first = (block - at.first_block) * at.block_rows;
  const int rows =
      at.matrix.planes.rows - first < at.block_rows ? at.matrix.planes.rows - first : at.block_rows;
  const auto row = static_cast<size_t>(token);
  const size_t y_first = row * p.y_stride + at.out + first;
  if (thread == 0) {
    RowJob& job = product_block().jobs[0];
    job.matrix = at.matrix;
    job.slots = nullptr;
    job.n_matrices = 1;
    job.first = first;
    job.end = first + rows;
    job.first_warp = job.first_book_warp = 0;
    job.warps = job.book_warps = kBlockWarps;
    job.vector = job.vector_step = 0;
    job.sums_at = p.layout.sums_at;
    job.books_at = p.layout.books_at[0];
    job.chunk_rows = at.chunk_rows;
    job.stage_at = p.layout.stage_at;
    job.chunk_bytes = p.layout.chunk_bytes;
    job.complete();
  } else if (thread == simt::kWarpSize) {
    BlockInput& in = product_block().input;
    in = {};
    in.skip = p.skip;
    in.layout = p.layout;
    in.codebooks = p.codebooks;
    in.n_vectors = 1;
    in.n = p.input.n;
    in.floats = takes_floats(at.matrix.type);
    in.quantized = !in.floats;
    in.x = p.input.x + row * p.input.n;
    in.weight = p.input.weight;
    in.eps = p.input.eps;
    if (p.input.shown != nullptr && block == 0) in.shown = p.input.shown + row * p.input.n;
    if (p.input.rounded != nullptr) in.rounded = p.input.rounded + row * p.layout.vector_bytes;
    if (p.input.squares != nullptr) {
      in.dim = p.input.dim;
      in.n_squares = p.input.n_squares;
      in.squares = p.input.squares + row * (p.input.n / p.input.dim) * p.input.n_squares;
    }
    if (p.residual != nullptr) in.extra = {p.residual + y_first, shared.before, rows};
  }
  return 0;
}

RL_DEVICE inline void finish(const Project::Params& p, const Products::Shared& shared) {
  const ProjectPart& at = p.parts[part_of_block(p)];
  const RowJob& job = product_block().jobs[0];
  const int rows = job.end - job.first;
  const size_t y_first =
      static_cast<size_t>(simt::block_index().y) * p.y_stride + static_cast<size_t>(at.out + job.first);
  const auto* sums = reinterpret_cast<const float*>(simt::dynamic_shared<std::byte>() + p.layout.sums_at);
  for (int i = simt::thread_index(); i < rows; i += kBlockThreads) {
    const float sum = row_sum(job.matrix, sums, 1, rows, 0, i);
    if (p.y != nullptr) p.y[y_first + i] = sum;
    if (p.residual != nullptr) p.residual[y_first + i] = shared.before[i] + sum;
  }
}

RL_DEVICE inline int prepare(const ExpertsGateUp::Params& p, Products::Shared&) {
  constexpr int kRows = ExpertsGateUp::kRows;
  const int first = static_cast<int>(simt::block_index().x) * kRows;
  // The shared expert first: its weights need not wait for the router.
  const int number = p.experts.n_all() - 1 - static_cast<int>(simt::block_index().y);
  const int token = static_cast<int>(simt::block_index().z), warp = simt::warp_index();
  const bool routed = number < p.experts.n_used;
  const ExpertMatrices& matrices = routed ? p.experts.slot : p.experts.shared;
  const int ff = matrices.gate.planes.rows;
  const int rows = ff - first < kRows ? ff - first : kRows;
  if (rows <= 0) {
    simt::wait_for_previous();
    return -1;
  }

  // Half of the warps have the rows of gate, half those of up.
  constexpr int kHalf = kBlockWarps / 2;
  const bool has_up = warp >= kHalf, alike = matrices.gate.type == matrices.up.type;
  const uint32_t gate_sums = p.layout.sums_at;
  const uint32_t up_sums = gate_sums + 4 * static_cast<uint32_t>(matrices.gate.segments * kRows);
  if (warp % kHalf == 0 && simt::lane_index() == 0) {
    RowJob& job = product_block().jobs[has_up ? 1 : 0];
    job.matrix = has_up ? matrices.up : matrices.gate;
    job.slots = routed ? p.slots + token * p.experts.n_used + number : nullptr;
    job.slot_bytes = p.experts.slot_bytes;
    job.n_matrices = 1;
    job.first = first;
    job.end = first + rows;
    job.first_warp = has_up ? kHalf : 0;
    job.warps = kHalf;
    job.first_book_warp = alike ? 0 : job.first_warp;
    job.book_warps = alike ? kBlockWarps : kHalf;
    job.vector = job.vector_step = 0;
    job.sums_at = has_up ? up_sums : gate_sums;
    job.books_at = p.layout.books_at[has_up && !alike ? 1 : 0];
    job.chunk_rows = routed ? p.layout.chunk_rows : p.layout.shared_chunk_rows;
    job.stage_at = p.layout.stage_at + (has_up ? p.layout.second_stage : 0);
    job.chunk_bytes = p.layout.chunk_bytes;
    job.complete();
  } else if (warp == 1 && simt::lane_index() == 0) {
    BlockInput& in = product_block().input;
    in = {};
    in.skip = p.skip;
    in.waits_first = routed;
    in.starts_next = true;  // ExpertsDown looks at the slots before it waits
    in.layout = p.layout;
    in.codebooks = p.codebooks;
    in.n_vectors = 1;
    in.n = p.n;
    in.floats = takes_floats(matrices.gate.type) || takes_floats(matrices.up.type);
    in.quantized = !takes_floats(matrices.gate.type) || !takes_floats(matrices.up.type);
    in.x = p.input + static_cast<size_t>(token) * p.n;
    in.rounded = p.rounded + static_cast<size_t>(token) * p.layout.vector_bytes;
  }
  return has_up ? 1 : 0;
}

RL_DEVICE inline void finish(const ExpertsGateUp::Params& p, const Products::Shared&) {
  if (simt::warp_index() != 0) return;
  constexpr int kRows = ExpertsGateUp::kRows;
  const int number = p.experts.n_all() - 1 - static_cast<int>(simt::block_index().y);
  const int token = static_cast<int>(simt::block_index().z), lane = simt::lane_index();
  const RowJob& gate_job = product_block().jobs[0];
  const RowJob& up_job = product_block().jobs[1];
  const int first = gate_job.first, rows = gate_job.end - first;
  const std::byte* memory = simt::dynamic_shared<std::byte>();
  float value = 0;
  const size_t vector = static_cast<size_t>(token) * p.experts.n_all() + number;
  if (lane < rows) {
    const auto sum = [&](const RowJob& job) {
      return row_sum(job.matrix, reinterpret_cast<const float*>(memory + job.sums_at), 1, rows, 0, lane);
    };
    value = silu(sum(gate_job)) * sum(up_job);
    p.hidden[vector * p.hidden_stride + first + lane] = value;
  }
  QuantizedActivations(p.hidden_rounded + vector * QuantizedActivations::bytes(p.hidden_stride),
                       p.hidden_stride)
      .put(first + lane, value, lane < kRows);
}

RL_DEVICE inline int prepare(const ExpertsDown::Params& p, Products::Shared& shared) {
  constexpr int kRows = ExpertsDown::kRows;
  const int first = static_cast<int>(simt::block_index().x) * kRows;
  const int token = static_cast<int>(simt::block_index().y);
  const int warp = simt::warp_index();
  const int n_all = p.experts.n_all(), n_used = p.experts.n_used;
  const int rows = p.n - first < kRows ? p.n - first : kRows;
  simt::let_next_start();

  // The slots are there (ExpertsGateUp has waited for them), the hidden values are not. But in a pass that is
  // skipped they are another layer's, and none of this one's. The last warp has the shared expert, the others
  // the routed ones.
  const int routed_warps = p.experts.has_shared ? kBlockWarps - 1 : kBlockWarps;
  const bool routed = warp < routed_warps;
  const DeviceMatrix& down = p.experts.slot.down;
  const DeviceMatrix& shared_down = p.experts.shared.down;
  const uint32_t shared_sums = p.layout.sums_at + 4 * static_cast<uint32_t>(down.segments * n_used * rows);
  const size_t at = static_cast<size_t>(token) * p.n + first;
  if (warp == 2) {
    // The kernel that chose the experts has ended, too.
    const int lane = simt::lane_index();
    const auto* scores = reinterpret_cast<const uint32_t*>(p.scores) + static_cast<size_t>(token) * n_all;
    const float score = lane < n_all ? simt::float_of_bits(simt::load_relaxed(scores + lane)) : 0;
    const float share = share_of(score, n_used, p.scale);
    if (lane < n_all) shared.shares[lane] = lane < n_used ? share : sigmoid(score);
  } else if ((warp == 0 || !routed) && simt::lane_index() == 0) {
    RowJob& job = product_block().jobs[routed ? 0 : 1];
    job.matrix = routed ? down : shared_down;
    job.slots = routed ? p.slots + static_cast<size_t>(token) * n_used : nullptr;
    job.slot_bytes = p.experts.slot_bytes;
    job.n_matrices = routed ? n_used : 1;
    job.first = first;
    job.end = first + rows;
    job.first_warp = job.first_book_warp = routed ? 0 : routed_warps;
    job.warps = job.book_warps = routed ? routed_warps : 1;
    job.vector = routed ? 0 : n_used;
    job.vector_step = 1;
    job.sums_at = routed ? p.layout.sums_at : shared_sums;
    job.books_at = p.layout.books_at[routed ? 0 : 1];
    job.chunk_rows = p.layout.chunk_rows;
    job.stage_at = p.layout.stage_at + (routed ? 0 : p.layout.second_stage);
    job.chunk_bytes = p.layout.chunk_bytes;
    job.complete();
  } else if (warp == 1 && simt::lane_index() == 0) {
    const bool other_floats = p.experts.has_shared && takes_floats(shared_down.type);
    BlockInput& in = product_block().input;
    in = {};
    in.skip = p.skip;
    in.waits_first = p.skip != nullptr;
    in.layout = p.layout;
    in.codebooks = p.codebooks;
    in.n_vectors = n_all;
    in.n = p.hidden_stride;
    in.floats = takes_floats(down.type) || other_floats;
    in.quantized = !takes_floats(down.type) || (p.experts.has_shared && !other_floats);
    in.x = p.hidden + static_cast<size_t>(token) * n_all * p.hidden_stride;
    in.rounded = p.hidden_rounded + static_cast<size_t>(token) * n_all * p.layout.vector_bytes;
    in.extra = {p.residual + at, shared.before, rows};
  }
  return routed ? 0 : 1;
}

RL_DEVICE inline void finish(const ExpertsDown::Params& p, const Products::Shared& shared) {
  const int thread = simt::thread_index(), n_used = p.experts.n_used;
  const RowJob& job = product_block().jobs[0];
  const RowJob& shared_job = product_block().jobs[1];
  const int rows = job.end - job.first;
  const size_t at = static_cast<size_t>(simt::block_index().y) * p.n + static_cast<size_t>(job.first);
  if (thread < rows) {
    const std::byte* memory = simt::dynamic_shared<std::byte>();
    const auto* sums = reinterpret_cast<const float*>(memory + job.sums_at);
    float sum = 0;
    for (int i = 0; i < n_used; ++i)
      sum = simt::fma(shared.shares[i], row_sum(job.matrix, sums, n_used, rows, i, thread), sum);
    if (p.experts.has_shared) {
      sums = reinterpret_cast<const float*>(memory + shared_job.sums_at);
      sum = simt::fma(shared.shares[n_used], row_sum(shared_job.matrix, sums, 1, rows, 0, thread), sum);
    }
    p.residual[at + thread] = shared.before[thread] + sum;
    if (p.shown != nullptr) p.shown[at + thread] = sum;
  }
}

}  // namespace

RL_RUN void Products::run(const Params& p, Shared& shared) {
  const auto& project = *reinterpret_cast<const Project::Params*>(p.of_part);
  const auto& gate_up = *reinterpret_cast<const ExpertsGateUp::Params*>(p.of_part);
  const auto& down = *reinterpret_cast<const ExpertsDown::Params*>(p.of_part);
  const int job = p.what == What::project   ? prepare(project, shared)
                  : p.what == What::gate_up ? prepare(gate_up, shared)
                                            : prepare(down, shared);
  if (job < 0) return;
  simt::sync_block();
  if (!start(job) || !wait_for_input()) return;
  multiply(job);
  simt::sync_block();
  if (p.what == What::project) {
    finish(project, shared);
  } else if (p.what == What::gate_up) {
    finish(gate_up, shared);
  } else {
    finish(down, shared);
  }
}

RL_KERNEL(Products);

}  // namespace redlite::gpu
