#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "synth/blocks.h"
#include "synth/tensors.h"

namespace redlite::synth {

/// Produces the bytes of a model's tensors, piece by piece. Any piece at any time and from any thread: its
/// bytes depend on the seed, the tensor and the piece only.
class Filler {
 public:
  Filler(uint64_t seed, std::vector<TensorPlan> tensors);

  /// Some consecutive rows of one tensor.
  struct Piece {
    size_t tensor;
    uint64_t first_row;
    uint64_t n_rows;
    size_t bytes;
  };
  /// All pieces in the order of the file; each of about a MiB.
  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::vector<TensorPlan>& tensors() const { return tensors_; }

  void fill(const Piece& piece, std::span<std::byte> out) const;

 private:
  void fill_rows(const TensorPlan& tensor, const Piece& piece, std::span<std::byte> out) const;

  uint64_t seed_;
  std::vector<TensorPlan> tensors_;
  std::vector<Piece> pieces_;
  std::map<quant::Type, BlockWriter> writers_;
  std::map<size_t, std::vector<std::vector<std::byte>>>
      same_groups_;  ///< by tensor: bytes of each such group
};

}  // namespace redlite::synth
