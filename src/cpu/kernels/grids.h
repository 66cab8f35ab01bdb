#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/codebooks.h"

/// Codebooks as bytes level + offset, an entry in one word: for kernels that load entries one by one.
namespace redlite::cpu {

/// What the decoders add to weights so that they are unsigned.
inline constexpr int kIq1Offset = 16, kIq2Offset = 64, kIq3Offset = 64;

template <typename Entry, size_t kEntries, typename Level>
constexpr std::array<Entry, kEntries> make_grid(const uint16_t (&codes)[kEntries], Level level) {
  constexpr int kValues = static_cast<int>(sizeof(Entry)), kBits = 16 / kValues - (kValues == 4 ? 1 : 0);
  std::array<Entry, kEntries> out{};
  for (size_t e = 0; e < kEntries; ++e) {
    for (int i = 0; i < kValues; ++i) {
      const int code = (codes[e] >> (kBits * i)) & ((1 << kBits) - 1);
      out[e] |= static_cast<Entry>(static_cast<Entry>(level(code)) << (8 * i));
    }
  }
  return out;
}

/// 8 t + 1 + offset, and 2048 entries on, for the negative shift, 2 less.
alignas(64) inline constexpr auto kIq1Grid = [] {
  constexpr auto kPositive =
      make_grid<uint64_t>(quant::kIq1Codes, [](int code) { return 8 * (code - 1) + 1 + kIq1Offset; });
  std::array<uint64_t, 4096> out{};
  for (size_t e = 0; e < 2048; ++e) {
    out[e] = kPositive[e];
    out[2048 + e] = kPositive[e] - 0x0202020202020202u;
  }
  return out;
}();
alignas(64) inline constexpr auto kIq2XxsGrid = make_grid<uint64_t>(quant::kIq2XxsCodes, [](int code) {
  return quant::kIq2Levels[code] + kIq2Offset;
});
alignas(64) inline constexpr auto kIq2XsGrid = make_grid<uint64_t>(quant::kIq2XsCodes, [](int code) {
  return quant::kIq2Levels[code] + kIq2Offset;
});
alignas(64) inline constexpr auto kIq2SGrid = make_grid<uint64_t>(quant::kIq2SCodes, [](int code) {
  return quant::kIq2Levels[code] + kIq2Offset;
});
alignas(64) inline constexpr auto kIq3XxsGrid = make_grid<uint32_t>(quant::kIq3XxsCodes, [](int code) {
  return quant::kIq3XxsLevels[code] + kIq3Offset;
});
alignas(64) inline constexpr auto kIq3SGrid = make_grid<uint32_t>(quant::kIq3SCodes, [](int code) {
  return quant::kIq3SLevels[code] + kIq3Offset;
});

}  // namespace redlite::cpu
