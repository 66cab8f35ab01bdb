#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "model/runner.h"

namespace redlite::session {

/// A place in a conversation from which computation can go on.
struct PlacedMark {
  int position = 0;
  std::shared_ptr<const model::Mark> mark;
  std::vector<float> logits;  ///< of the token before it; empty: not kept
};

/// The state of a conversation, copied out of its sequence. Immutable once made.
struct KeptState {
  std::vector<model::Token> tokens;
  AlignedBuffer<std::byte> positions;  ///< keys and values of all tokens
  std::vector<PlacedMark> marks;       ///< positions rise

  uint64_t bytes() const {
    uint64_t sum = positions.size();
    for (const PlacedMark& m : marks) sum += m.mark->bytes().size() + m.logits.size() * sizeof(float);
    return sum;
  }
};

inline int common_prefix(std::span<const model::Token> a, std::span<const model::Token> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<int>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

/// From where of a conversation a prompt can go on: at most the common part, and so that there is something
/// left to compute the logits of, unless they were kept. 0: from the beginning.
/// `every`: every position is as good as marked.
inline int best_place(std::span<const model::Token> tokens, std::span<const PlacedMark> marks, bool every,
                      std::span<const model::Token> prompt) {
  const int common = common_prefix(tokens, prompt);
  const int last = static_cast<int>(prompt.size()) - 1;
  int best = every ? std::min(common, last) : 0;
  for (const PlacedMark& m : marks) {
    if (m.position <= common && (m.position <= last || !m.logits.empty())) best = std::max(best, m.position);
  }
  return best;
}

}  // namespace redlite::session
