#pragma once

#include <cstdint>

#include "gpu/codebooks.h"
#include "gpu/simt.h"
#include "quant/type.h"

/// Where units look up their codebooks: `const Codebooks*` as they lie in device memory, or StagedBooks.
namespace redlite::gpu {

/// A type's codebook in shared memory, several times over: word e of copy c lies at e * kCopies + c, and a
/// thread takes the copy of its lane, so that few threads of a warp meet in a bank. Look-ups through L1,
/// which serves few lines at a time, and from a single copy in shared memory, where 32 random words take 3.5
/// turns, were what the products waited for.
template <quant::Type T>
class StagedBooks {
 public:
  static constexpr uint32_t kEntries = T == quant::Type::IQ2_XXS || T == quant::Type::IQ3_XXS ? 256
                                       : T == quant::Type::IQ2_XS || T == quant::Type::IQ3_S  ? 512
                                       : T == quant::Type::IQ2_S                              ? 1024
                                       : T == quant::Type::IQ1_S || T == quant::Type::IQ1_M   ? 2048
                                                                                              : 0;
  static constexpr bool kHasSigns = T == quant::Type::IQ2_XXS || T == quant::Type::IQ2_XS;
  static constexpr uint32_t kSigns = kHasSigns ? 128 : 0;
  /// As many as 32 KiB hold, at most 16: two lanes a copy.
  static constexpr uint32_t kCopies = kEntries == 2048 ? 4 : kEntries == 1024 ? 8 : 16;
  static constexpr uint32_t kBytes = (kEntries + kSigns) * kCopies * 4;

  /// In `memory` of kBytes, 16-byte aligned.
  RL_DEVICE explicit StagedBooks(std::byte* memory)
      : base_(simt::shared_address(memory) + 4 * (static_cast<uint32_t>(simt::lane_index()) % kCopies)) {}

  /// Fills `memory` by warp number `warp` of `warps` that do so; a sync_block() comes before the first
  /// look-up.
  static RL_DEVICE void stage(std::byte* memory, const Codebooks* from, int warp, int warps) {
    if constexpr (kEntries > 0) {
      for (uint32_t i = static_cast<uint32_t>(warp * simt::kWarpSize + simt::lane_index()); i < kBytes / 16;
           i += static_cast<uint32_t>(warps) * simt::kWarpSize) {
        const uint32_t word = entry(from, i / (kCopies / 4));
        reinterpret_cast<simt::U32x4*>(memory)[i] = {{word, word, word, word}};
      }
    }
  }

  RL_DEVICE uint32_t look_up(uint32_t i) const { return simt::load_shared(base_ + i * (4 * kCopies)); }
  RL_DEVICE uint32_t look_up_signs(uint32_t i) const {
    return simt::load_shared(base_ + 4 * kEntries * kCopies + i * (4 * kCopies));
  }

 private:
  static RL_DEVICE uint32_t entry(const Codebooks* from, uint32_t i) {
    using quant::Type;
    if (kHasSigns && i >= kEntries) return simt::load_cached(&from->even_signs[i - kEntries]);
    if constexpr (T == Type::IQ2_XXS) return simt::load_cached(&from->iq2_xxs[i]);
    if constexpr (T == Type::IQ2_XS) return simt::load_cached(&from->iq2_xs[i]);
    if constexpr (T == Type::IQ2_S) return simt::load_cached(&from->iq2_s[i]);
    if constexpr (T == Type::IQ3_XXS) return simt::load_cached(&from->iq3_xxs[i]);
    if constexpr (T == Type::IQ3_S) return simt::load_cached(&from->iq3_s[i]);
    if constexpr (T == Type::IQ1_S || T == Type::IQ1_M) return simt::load_cached(&from->iq1[i]);
    return 0;
  }

  simt::SharedAddress base_;
};

namespace detail {

RL_DEVICE inline uint32_t iq2_xxs(const Codebooks* books, uint32_t i) {
  return books->iq2_xxs[i];
}
RL_DEVICE inline uint32_t iq2_xs(const Codebooks* books, uint32_t i) {
  return books->iq2_xs[i];
}
RL_DEVICE inline uint32_t iq2_s(const Codebooks* books, uint32_t i) {
  return books->iq2_s[i];
}
RL_DEVICE inline uint32_t iq3_xxs(const Codebooks* books, uint32_t i) {
  return books->iq3_xxs[i];
}
RL_DEVICE inline uint32_t iq3_s(const Codebooks* books, uint32_t i) {
  return books->iq3_s[i];
}
RL_DEVICE inline uint32_t iq1(const Codebooks* books, uint32_t i) {
  return books->iq1[i];
}
RL_DEVICE inline uint32_t even_signs(const Codebooks* books, uint32_t i) {
  return books->even_signs[i];
}

RL_DEVICE inline uint32_t iq2_xxs(StagedBooks<quant::Type::IQ2_XXS> books, uint32_t i) {
  return books.look_up(i);
}
RL_DEVICE inline uint32_t iq2_xs(StagedBooks<quant::Type::IQ2_XS> books, uint32_t i) {
  return books.look_up(i);
}
RL_DEVICE inline uint32_t iq2_s(StagedBooks<quant::Type::IQ2_S> books, uint32_t i) {
  return books.look_up(i);
}
RL_DEVICE inline uint32_t iq3_xxs(StagedBooks<quant::Type::IQ3_XXS> books, uint32_t i) {
  return books.look_up(i);
}
RL_DEVICE inline uint32_t iq3_s(StagedBooks<quant::Type::IQ3_S> books, uint32_t i) {
  return books.look_up(i);
}
template <quant::Type T>
RL_DEVICE inline uint32_t iq1(StagedBooks<T> books, uint32_t i) {
  return books.look_up(i);
}
template <quant::Type T>
RL_DEVICE inline uint32_t even_signs(StagedBooks<T> books, uint32_t i) {
  return books.look_up_signs(i);
}

}  // namespace detail

}  // namespace redlite::gpu
