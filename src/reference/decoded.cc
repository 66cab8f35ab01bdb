#include "reference/decoded.h"

#include "base/error.h"
#include "quant/decode.h"

namespace redlite::reference {

std::span<const float> DecodedMatrices::values(const model::Matrix& w) {
  const size_t size = static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols);
  const auto found = kept_.find(w.data);
  if (found != kept_.end() && found->second.size() == size) return found->second;
  const bool keep = found == kept_.end() && used_ + size * sizeof(float) <= limit_;
  std::vector<float>& out = keep ? kept_[w.data] : scratch_;
  if (keep) used_ += size * sizeof(float);
  out.resize(size);
  quant::decode(w.type, w.data, out.data(), size);
  return out;
}

Vec DecodedMatrices::multiply(const model::Matrix& w, std::span<const double> x) {
  const size_t rows = static_cast<size_t>(w.rows), cols = static_cast<size_t>(w.cols);
  RL_CHECK(x.size() == cols, "{} values for {} columns", x.size(), cols);
  const std::span<const float> values = this->values(w);
  Vec y(rows);
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t c = 0; c < cols; ++c) sum += static_cast<double>(values[r * cols + c]) * x[c];
    y[r] = sum;
  }
  return y;
}

}  // namespace redlite::reference
