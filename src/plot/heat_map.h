#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace redlite::plot {

/// Counts in rows and columns, drawn as cells of twelve shades. Shades are steps of the square root, so that
/// the few large counts leave differences between the many small ones; cells of 0 stay empty.
struct HeatMap {
  std::string title, x_label, y_label;
  size_t rows = 0, columns = 0;
  std::vector<uint64_t> counts;  ///< [rows][columns]

  std::string svg() const;
};

}  // namespace redlite::plot
