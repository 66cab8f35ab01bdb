#pragma once

#include <type_traits>

#include "gpu/kernels/block.h"
#include "gpu/kernels/books.h"
#include "gpu/kernels/device_matrix.h"
#include "gpu/kernels/units.h"

/// Products of rows of weights with activations, for the kernels that are made of them. A block's warps have
/// one or two jobs, and do
///   start(job)            before the kernel in front has ended codebooks and, where it does not choose them,
///   the
///                         first weights begin to come to shared memory, all at once and in the background;
///   wait_for_input(job)   waits for it and brings the activations to shared memory;
///   multiply(job)         each thread takes its part of a row's columns into registers and multiplies it
///   with
///                         row after row, while the weights of the next rows come in.
/// Sums have one order, whichever block or warp has the row: within a unit, then between units in
/// pairs, pairs of pairs and so on: the lanes of a row, then its segments of 32 units.
namespace redlite::gpu {

/// What some warps of a block multiply: rows [first, end) of one matrix, or of several alike.
struct RowJob {
  DeviceMatrix matrix;
  const int32_t* slots;  ///< matrix i lies slots[i] * slot_bytes behind `matrix`; nullptr: there is but one
  uint64_t slot_bytes;
  int n_matrices;
  int first, end;
  int first_warp, warps;            ///< of the block's, which have rows
  int first_book_warp, book_warps;  ///< which fill `books`
  int vector;  ///< number of the vector that matrix 0 is multiplied with, matrix i: i * vector_step more
  int vector_step;
  uint32_t sums_at;   ///< in dynamic shared memory: [segments][n_matrices][end - first]
  uint32_t books_at;  ///< ... and room for StagedBooks
  // Weights of quantised types are staged, chunk_rows at a time of every matrix: two chunks, in turn.
  int chunk_rows;
  uint32_t stage_at, chunk_bytes;  ///< the second place lies chunk_bytes behind

  // What follows from these, so that it is at hand when the input is there: complete() fills it in.
  int chunks;
  uint32_t plane_at[kMaxPlanes];  ///< in a chunk of a matrix in shared memory, plane after plane
  uint32_t matrix_bytes;          ///< of all of its planes
  // Of several matrices each has a warp. One is shared out between all: a warp has every `strands`-th group
  // of rows in one of its segments (in several, where segments are more than warps).
  int strands;

  RL_DEVICE void complete() {
    chunks = end - first <= chunk_rows ? 1 : (end - first + chunk_rows - 1) / chunk_rows;
    matrix_bytes = 0;
    RL_UNROLL
    for (int p = 0; p < kMaxPlanes; ++p) {
      plane_at[p] = matrix_bytes;
      matrix_bytes += staged_bytes(matrix.row_bytes[p], chunk_rows);
    }
    strands = matrix.segments == 1 ? warps : warps > matrix.segments ? warps / matrix.segments : 1;
  }
  RL_DEVICE int chunk_first(int chunk) const { return first + chunk * chunk_rows; }
  RL_DEVICE int chunk_end(int chunk) const {
    return end - first < (chunk + 1) * chunk_rows ? end : first + (chunk + 1) * chunk_rows;
  }
};

/// The activations of a block, and what else it reads once the kernel in front has ended.
struct BlockInput {
  const uint32_t* skip;  ///< the early-out flag
  bool waits_first;      ///< which weights are wanted is known only when the kernel in front has ended
  bool starts_next;      ///< let_next_start() is called behind the wait and not before
  ProductLayout layout;
  const Codebooks* codebooks;
  int n_vectors;
  int n;                   ///< of a vector
  bool floats, quantized;  ///< which of the two are wanted
  const float* x;          ///< [n_vectors][n], or with a norm [n]
  // The RMS norm of x, times weight:
  const float* weight;  ///< [n]; nullptr: no norm
  float eps;
  float* shown;  ///< [n], the norm is written there, too; nullptr: not
  // As another kernel has rounded it (without a norm):
  const std::byte* rounded;  ///< [n_vectors][layout.vector_bytes]
  const float* squares;      ///< [n / dim][n_squares]: parts of the sum of the squares of each head of dim
                             ///< values, by whose RMS norm it is still to be multiplied; nullptr: it is not
  int dim, n_squares;
  static constexpr int kMostSquares = 4;
  /// Values that go to shared memory as they are, at most kBlockThreads.
  struct Extra {
    const float* from;  ///< nullptr: none
    float* to;
    int n;
  } extra;
};

/// What a block's threads know about its products, at the beginning of dynamic shared memory: not in the
/// threads' own memory, which would not fit into L1.
struct ProductBlock {
  BlockInput input;
  RowJob jobs[2];
  float scratch[kBlockWarps];
};
static_assert(sizeof(ProductBlock) <= kProductHeader);

RL_DEVICE inline ProductBlock& product_block() {
  return *simt::dynamic_shared<ProductBlock>();
}

namespace detail {

/// Vector number `number` of the block's as integers.
RL_DEVICE inline QuantizedActivations rounded_vector(const BlockInput& in, int number) {
  return {simt::dynamic_shared<std::byte>() + kProductHeader +
              in.layout.vector_bytes * static_cast<uint32_t>(number),
          in.n};
}

/// 1 / sqrt(mean of the squares + eps) of the head that value i belongs to.
RL_DEVICE inline float head_scale(const BlockInput& in, int i) {
  const float* squares = in.squares + i / in.dim * in.n_squares;
  float part[BlockInput::kMostSquares];  // all asked for at once
  RL_UNROLL
  for (int j = 0; j < BlockInput::kMostSquares; ++j) part[j] = squares[j < in.n_squares ? j : 0];
  float sum = 0;
  RL_UNROLL
  for (int j = 0; j < BlockInput::kMostSquares; ++j) sum += j < in.n_squares ? part[j] : 0;
  return simt::reciprocal_sqrt(sum / static_cast<float>(in.dim) + in.eps);
}

/// Starts to bring the norm's weights to shared memory, where a block holds the vector in registers; each
/// thread those that it will use.
RL_DEVICE inline void start_weights(const BlockInput& in) {
  if (in.weight == nullptr || !BlockVector::holds(in.n)) return;
  std::byte* to = simt::dynamic_shared<std::byte>() + in.layout.weights_at;
  for (int i = 4 * simt::thread_index(); i < in.n; i += 4 * kBlockThreads)
    simt::copy_async16(to + sizeof(float) * i, in.weight + i);
}

RL_DEVICE inline void normalize(const BlockInput& in, float* scratch) {
  std::byte* memory = simt::dynamic_shared<std::byte>();
  auto* values = reinterpret_cast<float*>(memory + in.layout.floats_at);
  QuantizedActivations rounded = rounded_vector(in, 0);
  const int n = in.n;
  float* const shown = in.shown;
  if (BlockVector::holds(n)) {
    BlockVector x;
    x.load(in.x, n);
    const float scale = x.rms_scale(n, in.eps, scratch);
    simt::copy_wait<1>();
    const auto* weights = reinterpret_cast<const float*>(memory + in.layout.weights_at);
    rounded.fill(n, x, [&](int i, simt::F32x4& word) {
      const auto weight = *reinterpret_cast<const simt::F32x4*>(weights + i);
      RL_UNROLL
      for (int j = 0; j < 4; ++j) word.v[j] = word.v[j] * scale * weight.v[j];
      if (in.floats) *reinterpret_cast<simt::F32x4*>(values + i) = word;
      if (shown != nullptr) *reinterpret_cast<simt::F32x4*>(shown + i) = word;
    });
  } else {
    const float scale = rms_scale(in.x, n, in.eps, scratch);
    const auto value = [&](int i) { return in.x[i] * scale * in.weight[i]; };
    rounded.fill(n, value);
    RL_UNROLL_BY(1)
    for (int i = simt::thread_index(); i < n; i += kBlockThreads) {
      values[i] = value(i);
      if (shown != nullptr) shown[i] = value(i);
    }
  }
}

RL_DEVICE inline void bring(const BlockInput& in) {
  std::byte* memory = simt::dynamic_shared<std::byte>();
  const int thread = simt::thread_index();
  if (in.floats) {
    auto* values = reinterpret_cast<float*>(memory + in.layout.floats_at);
    const int stride = static_cast<int>(in.layout.float_bytes / sizeof(float));
    RL_UNROLL_BY(1)
    for (int v = 0; v < in.n_vectors; ++v) {
      RL_UNROLL_BY(1)
      for (int i = thread; i < in.n; i += kBlockThreads) {
        const float value = in.x[v * in.n + i];
        values[v * stride + i] = in.squares == nullptr ? value : value * head_scale(in, i);
      }
    }
  }
  if (in.quantized && in.squares != nullptr) {
    // One vector with norms of heads: its scales and sums are multiplied on the way.
    const QuantizedActivations vector = rounded_vector(in, 0);
    const int strips = QuantizedActivations::strips(in.n);
    const auto* from = reinterpret_cast<const simt::U32x4*>(in.rounded);
    const auto* scales = reinterpret_cast<const float*>(from + strips);
    for (int s = thread; s < strips; s += kBlockThreads) {
      const int i = s * QuantizedActivations::kStrip;
      const bool there = i < in.n;
      const simt::U32x4 integers = from[s];
      const float scale = scales[s], sum = scales[strips + s], of_head = head_scale(in, there ? i : 0);
      vector.integers()[s] = integers;
      vector.scales()[s] = there ? scale * of_head : 0;
      vector.sums()[s] = there ? sum * of_head : 0;
    }
  }
}

/// Starts to bring what is rounded and needs no more than to be copied.
RL_DEVICE inline void start_rounded(const BlockInput& in) {
  if (!in.quantized || in.weight != nullptr || in.squares != nullptr) return;
  std::byte* to = simt::dynamic_shared<std::byte>() + kProductHeader;
  const int bytes = in.n_vectors * static_cast<int>(in.layout.vector_bytes);
  RL_UNROLL_BY(1)
  for (int i = 16 * simt::thread_index(); i < bytes; i += 16 * kBlockThreads)
    simt::copy_async16(to + i, in.rounded + i);
}

/// Where a job's matrix lies.
RL_DEVICE inline const std::byte* data_of(const RowJob& job, int matrix) {
  const std::byte* data = job.matrix.planes.data;
  if (job.slots == nullptr) return data;
  // Past L1, which may have kept the slots of a layer before.
  return data + job.slot_bytes * simt::load_relaxed(reinterpret_cast<const uint32_t*>(job.slots) + matrix);
}

/// Starts to bring a chunk of the job's rows to shared memory, by its warps: all of them a plane together
/// where there is one matrix, else each another one.
RL_NOINLINE static RL_DEVICE void stage(int number, int chunk) {
  const RowJob& job = product_block().jobs[number];
  const DeviceMatrix& m = job.matrix;
  const int first = job.chunk_first(chunk), end = job.chunk_end(chunk), n = job.n_matrices;
  const int lane = simt::lane_index(), warp = simt::warp_index() - job.first_warp;
  if (takes_floats(m.type)) {
    // These are not staged: at least they are in L2 when they are asked for.
    const uint32_t row = m.row_bytes[0];
    for (int i = warp; i < n * (end - first) && lane == 0 && row % 16 == 0; i += job.warps)
      simt::prefetch_l2(data_of(job, i / (end - first)) + m.planes.plane[0] +
                            static_cast<uint64_t>(first + i % (end - first)) * row,
                        row);
    return;
  }
  uint32_t slot = 0;
  // Past L1, which may have kept the slots of a layer before.
  if (job.slots != nullptr && lane < n)
    slot = simt::load_relaxed(reinterpret_cast<const uint32_t*>(job.slots) + lane);
  std::byte* to = simt::dynamic_shared<std::byte>() + job.stage_at + (chunk % 2 != 0 ? job.chunk_bytes : 0);
  const int together = n == 1 ? job.warps : 1;
  const auto thread = static_cast<uint32_t>(n == 1 ? warp * simt::kWarpSize + lane : lane);
  const uint32_t step = static_cast<uint32_t>(16 * simt::kWarpSize * together);
  for (int matrix = n == 1 ? 0 : warp; matrix < n; matrix += n == 1 ? 1 : job.warps) {
    const std::byte* from = m.planes.data + job.slot_bytes * simt::shuffle(slot, matrix);
    std::byte* place_of_matrix = to + static_cast<uint32_t>(matrix) * job.matrix_bytes;
    RL_UNROLL
    for (int p = 0; p < kMaxPlanes; ++p) {
      const uint32_t row = m.row_bytes[p];
      if (row == 0) continue;
      const uint64_t begin = static_cast<uint64_t>(first) * row / 16 * 16;
      const auto bytes = static_cast<uint32_t>((static_cast<uint64_t>(end) * row + 15) / 16 * 16 - begin);
      const std::byte* source = from + m.planes.plane[p] + begin;
      for (uint32_t i = 16 * thread; i < bytes; i += step)
        simt::copy_async16(place_of_matrix + job.plane_at[p] + i, source + i);
    }
  }
}

/// Behind chunk number `chunk`: waits for the next one, and begins to bring the one after it. False: it was
/// the last.
RL_NOINLINE static RL_DEVICE bool next_chunk(int number, int chunk) {
  const int chunks = product_block().jobs[number].chunks;
  if (chunk + 1 >= chunks) return false;
  simt::sync_block();
  if (chunk + 2 < chunks) stage(number, chunk + 2);
  simt::copy_commit();
  simt::copy_wait<1>();
  simt::sync_block();
  return true;
}

/// A unit times its activations, added up from 0. A strip: its integer times the weights' scale, rounded,
/// times the activations' scale. A min: times the sum of the activations of all the strips that share it.
template <quant::Type T, typename Books>
RL_DEVICE inline float unit_dot(const Unit<T>& unit, Books books,
                                const UnitActivations<Unit<T>::kValues>& x) {
  UnitValues<Unit<T>::kValues> w;
  unit.unpack(books, w);
  float sum = 0;
  RL_UNROLL
  for (int s = 0; s < UnitValues<Unit<T>::kValues>::kStrips; ++s) {
    int dot = 0;
    RL_UNROLL
    for (int j = 0; j < 4; ++j) dot = simt::dot4(w.q[4 * s + j], x.q[s].v[j], dot);
    sum = simt::fma(static_cast<float>(dot) * w.scale[s], x.scale[s], sum);
    if constexpr (Unit<T>::kMinStrips == 1) sum = simt::fma(-w.min[s], x.sum[s], sum);
    if constexpr (Unit<T>::kMinStrips == 2)
      if (s % 2 == 1) sum = simt::fma(-w.min[s], x.sum[s - 1] + x.sum[s], sum);
  }
  return sum;
}

template <quant::Type T>
RL_DEVICE inline void multiply_quantized(int number, int chunk) {
  constexpr int kValues = Unit<T>::kValues;
  std::byte* memory = simt::dynamic_shared<std::byte>();
  const BlockInput& in = product_block().input;
  const RowJob& job = product_block().jobs[number];
  const DeviceMatrix& m = job.matrix;
  const int warp = simt::warp_index() - job.first_warp, segments = m.segments;
  const int units = m.planes.cols / kValues, lanes = m.lanes;
  const int lane_bits = simt::count_bits(static_cast<uint32_t>(lanes - 1));
  const int lane = simt::lane_index() & (lanes - 1), row_in_group = simt::lane_index() >> lane_bits;
  const int first = job.chunk_first(chunk), rows = job.chunk_end(chunk) - first;
  const int groups = (rows + (simt::kWarpSize >> lane_bits) - 1) >> (5 - lane_bits);
  const int n_matrices = job.n_matrices, job_rows = job.end - job.first;
  // This warp's part: see RowJob::strands.
  const bool several = n_matrices > 1;
  const int matrix_step = several ? job.warps : 1, strands = several ? 1 : job.strands;
  const int segment_step = several ? 1 : job.warps;
  int strand = 0, first_segment = 0;
  if (!several && segments == 1) strand = warp;
  if (!several && segments > 1) {
    for (first_segment = warp; first_segment >= segments; first_segment -= segments) ++strand;
    if (strand >= strands) return;
  }

  detail::StagedPlanes planes;
  const simt::SharedAddress staged = simt::shared_address(memory) + job.stage_at +
                                     (chunk % 2 != 0 ? job.chunk_bytes : 0) +
                                     (several ? static_cast<uint32_t>(warp) * job.matrix_bytes : 0);
  RL_UNROLL
  for (int p = 0; p < kMaxPlanes; ++p) {
    planes.plane[p] =
        staged + job.plane_at[p] -
        static_cast<simt::SharedAddress>(static_cast<uint32_t>(first) * m.row_bytes[p] / 16 * 16);
  }
  const StagedBooks<T> books(memory + job.books_at);
  float* const all_sums = reinterpret_cast<float*>(memory + job.sums_at) + (first - job.first);
  RL_UNROLL_BY(1)
  for (int segment = first_segment; segment < segments; segment += segment_step) {
    // Threads without a unit, or a row, compute another's, and nobody looks.
    const int unit = segment * simt::kWarpSize + lane;
    const bool counts = unit < units;
    const int safe_unit = counts ? unit : units - 1;
    const auto first_unit =
        static_cast<uint32_t>(first) * static_cast<uint32_t>(units) + static_cast<uint32_t>(safe_unit);
    detail::StagedPlanes at = planes;
    RL_UNROLL_BY(1)
    for (int matrix = several ? warp : 0; matrix < n_matrices; matrix += matrix_step) {
      float* const sums = all_sums + (segment * n_matrices + matrix) * job_rows;
      int group = strand;
      if (group < groups) {
        const UnitActivations<kValues> x =
            rounded_vector(in, job.vector + matrix * job.vector_step).template unit<kValues>(safe_unit);
        const auto part_of = [&](int of_group) {
          const int row = (of_group << (5 - lane_bits)) + row_in_group;
          const int safe_row = row < rows ? row : rows - 1;
          const Unit<T> w = Unit<T>::load(at, first_unit + static_cast<uint32_t>(safe_row * units));
          const float part = unit_dot<T>(w, books, x);
          return counts ? part : 0;
        };
        // Two groups at a time: their instructions fill each other's gaps, and their sums share shuffles, as
        // every second one of a row's lanes goes on with the one, the others with the other.
        const bool odd = (lane & 1) != 0;
        RL_UNROLL_BY(1)
        for (; group + strands < groups && lanes > 1; group += 2 * strands) {
          const float one = part_of(group), other_one = part_of(group + strands);
          float part = odd ? other_one : one;
          part += simt::shuffle_xor(odd ? one : other_one, 1);
          RL_UNROLL
          for (int step = 2; step < simt::kWarpSize; step *= 2) {
            const float other = simt::shuffle_xor(part, step);
            part = step < lanes ? part + other : part;
          }
          const int row = ((odd ? group + strands : group) << (5 - lane_bits)) + row_in_group;
          if (lane < 2 && row < rows) sums[row] = part;
        }
        RL_UNROLL_BY(1)
        for (; group < groups; group += strands) {
          const int row = (group << (5 - lane_bits)) + row_in_group;
          float part = part_of(group);
          RL_UNROLL
          for (int step = 1; step < simt::kWarpSize; step *= 2) {
            const float other = simt::shuffle_xor(part, step);
            part = step < lanes ? part + other : part;
          }
          if (lane == 0 && row < rows) sums[row] = part;
        }
      }
      RL_UNROLL
      for (int p = 0; p < kMaxPlanes; ++p)
        at.plane[p] += static_cast<uint32_t>(matrix_step) * job.matrix_bytes;
    }
  }
}

/// F32, F16 and BF16: in steps of 16 bytes where rows are aligned to that, else value by value; the order of
/// the sum is the same, 16 bytes a thread in turn.
template <quant::Type T>
RL_DEVICE inline void multiply_floats(int number, int chunk) {
  using Value = std::conditional_t<T == quant::Type::F32, float, uint16_t>;
  constexpr int kStep = 16 / sizeof(Value), kAtOnce = 4;
  struct alignas(16) Step {
    Value v[kStep];
  };
  const auto as_float = [](Value v) {
    if constexpr (T == quant::Type::F32) {
      return v;
    } else if constexpr (T == quant::Type::F16) {
      return simt::half_to_float(v);
    } else {
      return simt::bfloat_to_float(v);
    }
  };
  std::byte* memory = simt::dynamic_shared<std::byte>();
  const BlockInput& in = product_block().input;
  const RowJob& job = product_block().jobs[number];
  const DeviceMatrix& m = job.matrix;
  const int warp = simt::warp_index() - job.first_warp, warps = job.warps;
  const int cols = m.planes.cols, lanes = m.lanes;
  const int lane = simt::lane_index() % lanes, row_in_group = simt::lane_index() / lanes;
  const int group_rows = simt::kWarpSize / lanes;
  const int first = job.chunk_first(chunk), rows = job.chunk_end(chunk) - first;
  const int groups = (rows + group_rows - 1) / group_rows;
  const int job_rows = job.end - job.first;
  if (warp >= warps) return;
  float* const sums = reinterpret_cast<float*>(memory + job.sums_at) + (first - job.first);
  for (int i = warp; i < job.n_matrices * groups; i += warps) {
    const int matrix = i / groups, row = i % groups * group_rows + row_in_group;
    const auto* x = reinterpret_cast<const float*>(
        memory + in.layout.floats_at + in.layout.float_bytes * (job.vector + matrix * job.vector_step));
    float sum = 0;
    if (row < rows) {
      const Value* w = reinterpret_cast<const Value*>(data_of(job, matrix) + m.planes.plane[0]) +
                       static_cast<uint64_t>(first + row) * static_cast<uint64_t>(cols);
      if (cols % kStep == 0) {
        for (int base = lane * kStep; base < cols; base += kAtOnce * lanes * kStep) {
          Step step[kAtOnce];
          RL_UNROLL
          for (int k = 0; k < kAtOnce; ++k) {
            const int at = base + k * lanes * kStep;
            if (at < cols) step[k] = simt::load_once(reinterpret_cast<const Step*>(w + at));
          }
          RL_UNROLL
          for (int k = 0; k < kAtOnce; ++k) {
            const int at = base + k * lanes * kStep;
            if (at < cols) {
              RL_UNROLL
              for (int j = 0; j < kStep; ++j) sum = simt::fma(as_float(step[k].v[j]), x[at + j], sum);
            }
          }
        }
      } else {
        for (int base = lane * kStep; base < cols; base += lanes * kStep) {
          for (int j = base; j < cols && j < base + kStep; ++j)
            sum = simt::fma(as_float(simt::load_cached(w + j)), x[j], sum);
        }
      }
    }
    sum = simt::warp_sum(sum, lanes);
    if (lane == 0 && row < rows) sums[matrix * job_rows + row] = sum;
  }
}

// Not inlined: 23 types in one kernel would take nvcc minutes.
template <quant::Type T>
RL_NOINLINE static RL_DEVICE void multiply(int number) {
  RL_UNROLL_BY(1)
  for (int chunk = 0;; ++chunk) {
    if constexpr (takes_floats(T)) {
      multiply_floats<T>(number, chunk);
    } else {
      multiply_quantized<T>(number, chunk);
    }
    if (!next_chunk(number, chunk)) return;
  }
}

}  // namespace detail

namespace detail {

/// Waits for the kernel in front and begins to bring what it has made; false: the pass is skipped.
RL_DEVICE inline bool wait_for_previous(const BlockInput& in) {
  if (simt::skipped(in.skip)) {
    simt::copy_wait<0>();
    return false;
  }
  if (in.starts_next) simt::let_next_start();
  start_rounded(in);
  return true;
}

}  // namespace detail

/// Begins with product_block().jobs[number], which a thread has filled in before a sync_block(), as
/// product_block().input; false: the pass is skipped.
RL_DEVICE inline bool start(int number) {
  const BlockInput& in = product_block().input;
  const RowJob& job = product_block().jobs[number];
  detail::start_weights(in);
  stage_books(job.matrix.type, simt::dynamic_shared<std::byte>() + job.books_at, in.codebooks,
              simt::warp_index() - job.first_book_warp, job.book_warps);
  if (in.waits_first && !detail::wait_for_previous(in)) return false;
  detail::stage(number, 0);
  simt::copy_commit();
  if (job.chunks > 1) detail::stage(number, 1);
  simt::copy_commit();
  return true;
}

/// Waits and brings the activations to shared memory; false: the pass is skipped.
RL_DEVICE inline bool wait_for_input() {
  const BlockInput& in = product_block().input;
  // Copies in the background: the first weights, the second ones, then the activations if these are copied
  // and did not come with the first weights.
  const bool own_copies = !in.waits_first && in.weight == nullptr;
  if (!in.waits_first && !detail::wait_for_previous(in)) return false;
  if (own_copies) simt::copy_commit();
  // All that is loaded is asked for before the first of it is waited for.
  const int thread = simt::thread_index();
  const bool has_extra = in.extra.from != nullptr && thread < in.extra.n;
  const float extra = has_extra ? in.extra.from[thread] : 0;
  if (in.weight != nullptr) {
    detail::normalize(in, product_block().scratch);
  } else {
    detail::bring(in);
  }
  if (has_extra) in.extra.to[thread] = extra;
  if (own_copies) {
    simt::copy_wait<0>();
  } else {
    simt::copy_wait<1>();
  }
  simt::sync_block();
  return true;
}

/// This warp's part of the job; a sync_block() comes before the sums are read. The jobs of a block have
/// equally many chunks.
RL_DEVICE inline void multiply(int number) {
  switch (product_block().jobs[number].matrix.type) {
#define RL_CASE(T)     \
  case quant::Type::T: \
    return detail::multiply<quant::Type::T>(number);
    RL_FOR_EACH_TYPE(RL_CASE)
#undef RL_CASE
  }
}

/// The sum of a row's segments: pairs, pairs of pairs, ...
RL_DEVICE inline float row_sum(const DeviceMatrix& m, const float* sums, int n_matrices, int rows, int matrix,
                               int row) {
  const auto segment = [&](int s) { return sums[(s * n_matrices + matrix) * rows + row]; };
  if (m.segments == 1) return segment(0);
  if (m.segments == 2) return segment(0) + segment(1);
  float whole[8];  // sums of 1, 2, 4, ... segments that wait for as many more
  float sum = 0;
  for (int s = 0; s < m.segments; ++s) {
    sum = segment(s);
    int level = 0;
    for (int before = s; before % 2 == 1; before /= 2) sum = whole[level++] + sum;
    whole[level] = sum;
  }
  // What is behind the last segment is zero.
  int level = 0;
  int left = m.segments;
  while (left % 2 == 0) {
    left /= 2;
    ++level;
  }
  sum = whole[level];
  for (left /= 2, ++level; left != 0; left /= 2, ++level)
    if (left % 2 == 1) sum = whole[level] + sum;
  return sum;
}

}  // namespace redlite::gpu
