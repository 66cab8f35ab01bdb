#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "session/kept_state.h"
#include "session/state_file.h"

namespace redlite::session {

/// States whose bytes follow from their tokens, so that any that is read can be checked.
inline StateShape synthetic_shape() {
  return {
      .fingerprint = {1, 2}, .mark_bytes = 5000, .position_bytes = 512, .capacity = 4096, .n_vocab = 1000};
}

class SyntheticMark final : public model::Mark {
 public:
  explicit SyntheticMark(AlignedBuffer<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_.span(); }

 private:
  AlignedBuffer<std::byte> bytes_;
};

inline AlignedBuffer<std::byte> synthetic_bytes(uint32_t seed, size_t size) {
  AlignedBuffer<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes[i] = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

/// n tokens, number `kind`, marked halfway and at the end.
inline std::shared_ptr<const KeptState> synthetic_state(int n, int kind) {
  auto state = std::make_shared<KeptState>();
  for (int i = 0; i < n; ++i) state->tokens.push_back((i * 7 + kind) % 1000);
  const StateShape shape = synthetic_shape();
  state->positions =
      synthetic_bytes(static_cast<uint32_t>(kind), shape.position_bytes * static_cast<size_t>(n));
  for (const int position : {n / 2, n}) {
    state->marks.push_back({position,
                            std::make_shared<SyntheticMark>(
                                synthetic_bytes(static_cast<uint32_t>(kind + position), shape.mark_bytes)),
                            {}});
  }
  return state;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Whether this is what was written for synthetic_state(n, kind), whichever they were.
inline bool is_synthetic(const StateHead& head, const StateContent& content) {
  const auto expected = synthetic_state(static_cast<int>(head.tokens.size()), head.tokens[0]);
  if (head.tokens != expected->tokens || head.marks.size() != 2 || content.marks.size() != 2) return false;
  for (size_t i = 0; i < 2; ++i) {
    if (head.marks[i] != expected->marks[i].position) return false;
    if (!same_bytes(content.marks[i].span(), expected->marks[i].mark->bytes())) return false;
  }
  return same_bytes(content.positions.span(), expected->positions.span());
}

}  // namespace redlite::session
