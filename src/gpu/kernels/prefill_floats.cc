#include "gpu/kernels/prefill_floats.h"

#include <algorithm>
#include <type_traits>

#include "gpu/kernels/block.h"

namespace redlite::gpu {

template <quant::Type T, int kStep>
struct PrefillFloats<T, kStep>::Shared {
  int input_row[kTileTokens];
};

template <quant::Type T, int kStep>
RL_RUN void PrefillFloats<T, kStep>::run(const Params& p, Shared& shared) {
  using Value = std::conditional_t<T == quant::Type::F32, float, uint16_t>;
  constexpr int kVector = std::min(kStep, 4);
  const int thread = simt::thread_index(), warp = simt::warp_index();
  const int first_row = static_cast<int>(simt::block_index().x) * kRows;
  simt::let_next_start();
  simt::wait_for_previous();
  ExpertTile tile;
  if (!find_tile(p.tokens, static_cast<int>(simt::block_index().y), tile)) return;
  const int n_tokens = tokens_of_block(p.lanes);
  const int first_token = static_cast<int>(simt::block_index().z) * n_tokens;
  if (first_token >= tile.count) return;
  if (thread < n_tokens) {
    const int token = first_token + thread < tile.count ? first_token + thread : tile.count - 1;
    const int place = tile.first + token;
    shared.input_row[thread] = p.tokens.input_row == nullptr ? place : p.tokens.input_row[place];
  }
  const std::byte* data = p.w.planes.data;
  if (p.tokens.tiles != nullptr)
    data += p.tokens.slot_bytes * static_cast<uint64_t>(tile.expert - p.tokens.first_expert);
  const auto* weights = reinterpret_cast<const Value*>(data + p.w.planes.plane[0]);
  const int cols = p.w.planes.cols, rows = p.w.planes.rows;
  const int place_size = (kRows + n_tokens) * kStride;
  const auto rows_at = [&](int place) {
    return simt::dynamic_shared<float>() + place * place_size;
  };                                                                                   // [kRows][kStride]
  const auto inputs_at = [&](int place) { return rows_at(place) + kRows * kStride; };  // [n_tokens][kStride]
  simt::sync_block();

  const int lane = simt::lane_index() % p.lanes, groups = simt::kWarpSize / p.lanes;
  const int my_row = warp / 2 * kRowsOfThread;
  const int my_token = (warp % 2 * groups + simt::lane_index() / p.lanes) * kTokensOfThread;
  const bool active = my_token < n_tokens && first_token + my_token < tile.count;
  float sums[kRowsOfThread][kTokensOfThread];
  RL_UNROLL
  for (int r = 0; r < kRowsOfThread; ++r) {
    RL_UNROLL
    for (int t = 0; t < kTokensOfThread; ++t) sums[r][t] = 0;
  }
  // Rows of whole 16 bytes come by copies in the background, others value by value.
  const bool whole = cols % 8 == 0;
  const auto fill = [&](int first, int place) {
    float *w = rows_at(place), *x = inputs_at(place);
    const int end = cols - first < kSlab ? cols - first : kSlab;
    const auto row_of = [&](int r) {
      const int row = first_row + r < rows ? first_row + r : rows - 1;  // those behind the last: anything
      return weights + static_cast<size_t>(row) * static_cast<size_t>(cols) + first;
    };
    const auto input_of = [&](int t) {
      return p.x + static_cast<size_t>(shared.input_row[t]) * static_cast<size_t>(p.x_stride) + first;
    };
    if (whole) {
      constexpr int kWords = kSlab / 4;
      for (int i = thread; i < n_tokens * kWords; i += kBlockThreads) {
        const int column = i % kWords * 4;
        if (column < end)
          simt::copy_async16(x + i / kWords * kStride + column, input_of(i / kWords) + column);
      }
      if constexpr (T == quant::Type::F32) {
        for (int i = thread; i < kRows * kWords; i += kBlockThreads) {
          const int column = i % kWords * 4;
          if (column < end)
            simt::copy_async16(w + i / kWords * kStride + column, row_of(i / kWords) + column);
        }
      }
      simt::copy_commit();
    } else {
      for (int i = thread; i < n_tokens * kSlab; i += kBlockThreads)
        x[i / kSlab * kStride + i % kSlab] = i % kSlab < end ? input_of(i / kSlab)[i % kSlab] : 0;
    }
    if (T != quant::Type::F32 || !whole) {
      for (int i = thread; i < kRows * kSlab; i += kBlockThreads) {
        float value = 0;
        if (i % kSlab < end) {
          const Value stored = row_of(i / kSlab)[i % kSlab];
          if constexpr (T == quant::Type::F32) value = stored;
          if constexpr (T == quant::Type::F16) value = simt::half_to_float(stored);
          if constexpr (T == quant::Type::BF16) value = simt::bfloat_to_float(stored);
        }
        w[i / kSlab * kStride + i % kSlab] = value;
      }
    }
  };
  fill(0, 0);
  for (int first = 0, place = 0; first < cols; first += kSlab) {
    simt::copy_wait<0>();
    simt::sync_block();
    const bool more = first + kSlab < cols;
    if (kPlaces == 2 && more) fill(first + kSlab, 1 - place);
    const float *w = rows_at(place), *x = inputs_at(place);
    const int end = cols - first < kSlab ? cols - first : kSlab;
    if (active) {
      for (int at = lane * kStep; at < end; at += p.lanes * kStep) {
        RL_UNROLL
        for (int v = 0; v < kStep; v += kVector) {
          float row_values[kRowsOfThread][kVector];
          RL_UNROLL
          for (int r = 0; r < kRowsOfThread; ++r) {
            const float* from = w + (my_row + r) * kStride + at + v;
            if constexpr (kVector == 4) {
              const simt::F32x4 four = *reinterpret_cast<const simt::F32x4*>(from);
              RL_UNROLL
              for (int i = 0; i < 4; ++i) row_values[r][i] = four.v[i];
            } else {
              row_values[r][0] = *from;
            }
          }
          RL_UNROLL
          for (int t = 0; t < kTokensOfThread; ++t) {
            float values[kVector];
            const float* from = x + (my_token + t) * kStride + at + v;
            if constexpr (kVector == 4) {
              const simt::F32x4 four = *reinterpret_cast<const simt::F32x4*>(from);
              RL_UNROLL
              for (int i = 0; i < 4; ++i) values[i] = four.v[i];
            } else {
              values[0] = *from;
            }
            RL_UNROLL
            for (int i = 0; i < kVector; ++i) {
              RL_UNROLL
              for (int r = 0; r < kRowsOfThread; ++r)
                sums[r][t] = simt::fma(row_values[r][i], values[i], sums[r][t]);
            }
          }
        }
      }
    }
    if (kPlaces == 2) {
      place = 1 - place;
    } else if (more) {
      simt::sync_block();
      fill(first + kSlab, 0);
    }
  }

  RL_UNROLL
  for (int r = 0; r < kRowsOfThread; ++r) {
    RL_UNROLL
    for (int t = 0; t < kTokensOfThread; ++t) {
      const float sum = simt::warp_sum(sums[r][t], p.lanes);
      const int row = first_row + my_row + r, token = first_token + my_token + t;
      if (lane != 0 || !active || row >= rows || token >= tile.count) continue;
      const int place = tile.first + token;
      const size_t out =
          static_cast<size_t>(p.tokens.output_row == nullptr ? place : p.tokens.output_row[place]);
      const size_t at = out * static_cast<size_t>(p.out.stride) + static_cast<size_t>(row);
      if (p.out.y != nullptr) p.out.y[at] = sum;
      if (p.out.sum != nullptr) p.out.sum[at] += sum;
    }
  }
}

RL_KERNEL(PrefillFloats<quant::Type::F32, 1>);
RL_KERNEL(PrefillFloats<quant::Type::F32, 4>);
RL_KERNEL(PrefillFloats<quant::Type::F16, 8>);
RL_KERNEL(PrefillFloats<quant::Type::BF16, 8>);

}  // namespace redlite::gpu
