#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/error.h"
#include "model/runner.h"

namespace redlite::session {

/// What states that fit together have in common: model, runner and program (see fingerprint.h), and sizes.
struct StateShape {
  uint64_t fingerprint[2] = {};
  uint64_t mark_bytes = 0;      ///< of the recurrent states of a mark
  uint64_t position_bytes = 0;  ///< keys and values of a position
  int capacity = 0;             ///< most tokens
  int n_vocab = 0;
};

/// Most marks of a state.
inline constexpr int kMostMarks = 4;

/// A conversation and where it is marked, without its state.
struct StateHead {
  std::vector<model::Token> tokens;
  std::vector<int> marks;  ///< positions, rising
};

struct StateContent {
  AlignedBuffer<std::byte> positions;           ///< [tokens.size() * position_bytes]
  std::vector<AlignedBuffer<std::byte>> marks;  ///< of each mark [mark_bytes]
};

/// The file is a state, but of another model, runner or program.
class ForeignState : public Error {
 public:
  using Error::Error;
};

/// Writes a state file so that there is the whole of it or nothing: a header with its own checksum, tokens,
/// positions of marks, then the content, compressed by zstd, with an xxHash of what it was before. Only the
/// user can read it. Throws Error.
void write_state_file(const std::string& path, const StateShape& shape, const StateHead& head,
                      std::span<const std::byte> positions,
                      std::span<const std::span<const std::byte>> marks);

/// Reads who it is. Any bytes are safe: what is not a state of this shape throws Error (ForeignState, where
/// it might be one of another), and nothing is allocated that such a state would not need.
StateHead read_state_head(const std::string& path, const StateShape& shape);

/// Reads all of it, `head` included.
StateContent read_state_file(const std::string& path, const StateShape& shape, StateHead& head);

}  // namespace redlite::session
