#pragma once

#include <cstdint>

#include "gpu/codebooks.h"
#include "gpu/simt.h"
#include "quant/type.h"

/// Where units look up their codebooks: `const Codebooks*` as they lie in device memory, or StagedBooks.
namespace redlite::gpu {

/// A type's codebook in shared memory, several times over: a thread takes the copy of its lane, so that few
/// threads of a warp meet in a bank. Look-ups through L1, which serves few lines at a time, were what the
/// products waited for.
template <quant::Type T>
class StagedBooks {
 public:
  static constexpr uint32_t kEntries = book_shape(T).entries;
  static constexpr uint32_t kCopies = book_shape(T).copies;
  static constexpr uint32_t kBytes = book_shape(T).words() * 4;
  static_assert(kBytes % 16 == 0);

  /// In `memory` of kBytes, 16-byte aligned.
  RL_DEVICE explicit StagedBooks(std::byte* memory)
      : base_(simt::shared_address(memory) + 4 * (static_cast<uint32_t>(simt::lane_index()) % kCopies)) {}

  RL_DEVICE uint32_t look_up(uint32_t i) const { return simt::load_shared(base_ + i * (4 * kCopies)); }
  RL_DEVICE uint32_t look_up_signs(uint32_t i) const {
    return simt::load_shared(base_ + 4 * kEntries * kCopies + i * (4 * kCopies));
  }

 private:
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

/// Starts to bring a type's staged codebook to `memory`, by warp number `warp` of `warps` that do so.
RL_DEVICE inline void stage_books(quant::Type type, std::byte* memory, const Codebooks* from, int warp,
                                  int warps) {
  const uint32_t bytes = 4 * book_shape(type).words();
  const auto* source = reinterpret_cast<const std::byte*>(static_cast<const DeviceCodebooks*>(from)->staged +
                                                          DeviceCodebooks::at(type));
  for (auto i = static_cast<uint32_t>(16 * (warp * simt::kWarpSize + simt::lane_index())); i < bytes;
       i += static_cast<uint32_t>(16 * warps * simt::kWarpSize))
    simt::copy_async16(memory + i, source + i);
}

}  // namespace redlite::gpu
