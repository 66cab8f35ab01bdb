#pragma once

#include <string>
#include <vector>

namespace redlite::plot {

struct Point {
  double x, y;
};

struct Curve {
  std::string name;
  std::vector<Point> points;  ///< finite, at least one, x rising
};

/// Curves over one horizontal axis, which starts where the data starts; the vertical one starts at 0.
struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;  ///< at least one; the first eight have colours of their own

  /// The picture, with a legend.
  std::string svg() const;
};

}  // namespace redlite::plot
