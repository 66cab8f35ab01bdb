#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/weights.h"
#include "reference/math.h"

namespace redlite::reference {

/// Products with quantised matrices: every row is decoded exactly, then multiplied in double precision.
/// Decoded matrices are kept up to a limit, so that small models decode each one once.
class DecodedMatrices {
 public:
  explicit DecodedMatrices(size_t limit_bytes) : limit_(limit_bytes) {}

  /// w[rows][cols] times x[cols]
  Vec multiply(const model::Matrix& w, std::span<const double> x);
  /// All values of a matrix, row by row; valid until the next call.
  std::span<const float> values(const model::Matrix& w);

 private:
  size_t limit_;
  size_t used_ = 0;
  std::unordered_map<const std::byte*, std::vector<float>> kept_;
  std::vector<float> scratch_;
};

}  // namespace redlite::reference
