#pragma once

#include <cstddef>
#include <span>

#include "quant/type.h"
#include "synth/random.h"

namespace redlite::synth {

/// Writes random blocks of one type that a quantiser could have written: every code, sign and sub-block scale
/// occurs, every f16 field is finite, and the decoded values have a mean near zero and the standard deviation
/// asked for.
class BlockWriter {
 public:
  /// Measures the type's decoded values at a block scale of one.
  explicit BlockWriter(quant::Type type);

  quant::Type type() const { return type_; }

  /// Fills `out`, whole blocks of the type, with values of standard deviation `deviation`; block scales vary
  /// by 12 % about it.
  void write(Random& random, float deviation, std::span<std::byte> out) const;

 private:
  quant::Type type_;
  float unit_ = 1;  ///< standard deviation of the decoded values when write_blocks() is given a scale of 1
};

}  // namespace redlite::synth
