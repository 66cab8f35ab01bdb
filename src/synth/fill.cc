#include "synth/fill.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace redlite::synth {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// The band of a row, and how many rows from it on are of that band.
struct BandPosition {
  const Band* band;
  uint64_t left;
};

BandPosition find_band(const TensorPlan& tensor, uint64_t row) {
  uint64_t period = 0;
  for (const Band& b : tensor.bands) period += b.rows;
  row %= period;
  for (const Band& b : tensor.bands) {
    if (row < b.rows) return {&b, b.rows - row};
    row -= b.rows;
  }
  RL_CHECK(false, "row {} of {}", row, tensor.name);
  return {};
}

void round_to_bf16(std::span<std::byte> floats) {
  for (size_t i = 0; i < floats.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, &floats[i], sizeof(float));
    value = bf16_to_f32(f32_to_bf16(value));
    std::memcpy(&floats[i], &value, sizeof(float));
  }
}

}  // namespace

Filler::Filler(uint64_t seed, std::vector<TensorPlan> tensors) : seed_(seed), tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorPlan& t = tensors_[i];
    const uint64_t rows = t.rows();
    const size_t row_bytes = quant::row_bytes(t.type, t.shape[0]);
    // Short F32 tensors are one piece: their values are drawn in order.
    const uint64_t step = t.bands.empty() ? rows : std::max<uint64_t>(1, kPieceBytes / row_bytes);
    for (uint64_t row = 0; row < rows; row += step) {
      const uint64_t n = std::min(step, rows - row);
      pieces_.push_back({i, row, n, n * row_bytes});
    }
    const BlockWriter& writer = writers_.try_emplace(t.type, t.type).first->second;
    if (std::find(t.same_in_all_rows.begin(), t.same_in_all_rows.end(), true) == t.same_in_all_rows.end())
      continue;
    auto& groups = same_groups_[i];
    for (size_t g = 0; g < t.same_in_all_rows.size(); ++g) {
      groups.emplace_back(t.same_in_all_rows[g] ? quant::row_bytes(t.type, kGroup) : 0);
      Random random(part_seed(seed_, t.name + "/same", g));
      writer.write(random, t.bands[0].deviations[g], groups.back());
    }
  }
}

void Filler::fill(const Piece& piece, std::span<std::byte> out) const {
  RL_CHECK(out.size() == piece.bytes, "{} {}", out.size(), piece.bytes);
  const TensorPlan& tensor = tensors_[piece.tensor];
  if (!tensor.bands.empty()) {
    fill_rows(tensor, piece, out);
    if (tensor.bf16_values) round_to_bf16(out);
    return;
  }
  Random random(part_seed(seed_, tensor.name, 0));
  for (uint64_t i = 0; i < piece.bytes / sizeof(float); ++i) {
    const float value = tensor.value(random, i);
    std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
  }
}

void Filler::fill_rows(const TensorPlan& tensor, const Piece& piece, std::span<std::byte> out) const {
  Random random(part_seed(seed_, tensor.name, piece.first_row));
  const BlockWriter& writer = writers_.at(tensor.type);
  const auto same = same_groups_.find(piece.tensor);
  const size_t row_bytes = piece.bytes / piece.n_rows;
  const size_t group_bytes = quant::row_bytes(tensor.type, kGroup);
  BandPosition at{nullptr, 0};
  for (uint64_t r = 0; r < piece.n_rows; ++r, --at.left) {
    if (at.left == 0) at = find_band(tensor, piece.first_row + r);
    const std::span<std::byte> row = out.subspan(r * row_bytes, row_bytes);
    // Rows differ in size as trained ones do.
    const float size = 1 + 0.1f * random.normal();
    const std::vector<float>& deviations = at.band->deviations;
    if (deviations.size() == 1) {
      writer.write(random, size * deviations[0], row);
      continue;
    }
    for (size_t g = 0; g < deviations.size(); ++g) {
      const std::span<std::byte> group = row.subspan(g * group_bytes, group_bytes);
      if (same != same_groups_.end() && !same->second[g].empty())
        std::copy(same->second[g].begin(), same->second[g].end(), group.begin());
      else
        writer.write(random, size * deviations[g], group);
    }
  }
}

}  // namespace redlite::synth
