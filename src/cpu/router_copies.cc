#include "cpu/router_copies.h"

#include <atomic>
#include <cstring>

#include "quant/decode.h"
#include "quant/encode.h"

namespace redlite::cpu {
namespace {

constexpr uint64_t kLine = 64;

}  // namespace

/// The copy's shape, without data; without rows if the router is of an odd width or of few bits already.
model::Matrix RouterCopies::shape_of(const model::Matrix& router, quant::Type type) {
  const bool fits = static_cast<size_t>(router.cols) % quant::info(type).block_values == 0;
  const bool smaller = router.row_bytes() > quant::row_bytes(type, static_cast<size_t>(router.cols));
  return {nullptr, type, fits && smaller ? router.rows : 0, router.cols};
}

uint64_t RouterCopies::bytes_needed(const model::Weights& weights, quant::Type type) {
  uint64_t bytes = 0;
  for (const model::LayerWeights& layer : weights.layers)
    bytes += (shape_of(layer.ffn.router, type).bytes() + kLine - 1) / kLine * kLine;
  return bytes;
}

RouterCopies::RouterCopies(const model::Weights& weights, quant::Type type, Loss loss)
    : weights_(weights),
      type_(type),
      loss_(loss),
      memory_(bytes_needed(weights, type) / sizeof(float), "copies of routers"),
      state_(weights.layers.size(), State::Unknown) {
  uint64_t at = 0;
  for (const model::LayerWeights& layer : weights.layers) {
    first_.push_back(at);
    at += (shape_of(layer.ffn.router, type).bytes() + kLine - 1) / kLine * kLine;
  }
}

model::Matrix RouterCopies::of(int layer, ThreadPool& pool) {
  const auto index = static_cast<size_t>(layer);
  const model::Matrix& router = weights_.layers[index].ffn.router;
  model::Matrix copy = shape_of(router, type_);
  if (copy.rows == 0) return router;
  auto* const rows = reinterpret_cast<std::byte*>(memory_.data()) + first_[index];
  State& state = state_[index];
  if (state == State::Unknown) state = make(router, copy, rows, pool) ? State::Made : State::ServesItself;
  if (state == State::ServesItself) return router;
  copy.data = rows;
  return copy;
}

/// False when the copy is of no use.
bool RouterCopies::make(const model::Matrix& router, const model::Matrix& copy, std::byte* rows,
                        ThreadPool& pool) const {
  const auto cols = static_cast<size_t>(router.cols);
  std::atomic<bool> good = true;
  pool.run(router.rows, 1 + router.rows / (4 * pool.size()), [&](int first, int last, int) {
    std::vector<float> row(cols), again(cols);
    for (int r = first; r < last && good; ++r) {
      std::byte* const to = rows + copy.row_bytes() * static_cast<size_t>(r);
      quant::decode(router.type, router.row(r), row.data(), cols);
      if (!quant::encode(copy.type, row.data(), to, cols)) good = false;
      if (loss_ == Loss::Allowed) continue;
      quant::decode(copy.type, to, again.data(), cols);
      if (std::memcmp(row.data(), again.data(), cols * sizeof(float)) != 0) good = false;
    }
  });
  return good;
}

}  // namespace redlite::cpu
