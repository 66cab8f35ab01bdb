#include "plot/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plot/svg.h"

namespace redlite::plot {
namespace {

constexpr double kWidth = 760, kLeft = 64, kRight = 24, kTop = 64, kPlotHeight = 340, kBottom = 52;
constexpr double kLegendRow = 18;
constexpr int kColours = 8;

}  // namespace

std::string LineChart::svg() const {
  RL_CHECK(!curves.empty(), "a chart without curves");
  double x_low = INFINITY, x_high = -INFINITY, y_high = 0;
  size_t longest = 1;
  for (const Curve& curve : curves) {
    RL_CHECK(!curve.points.empty(), "a curve without points");
    longest = std::max(longest, curve.name.size());
    for (const Point& p : curve.points) {
      RL_CHECK(std::isfinite(p.x) && std::isfinite(p.y), "a point at {}, {}", p.x, p.y);
      x_low = std::min(x_low, p.x);
      x_high = std::max(x_high, p.x);
      y_high = std::max(y_high, p.y);
    }
  }
  const std::vector<double> x_ticks = round_ticks(x_low, x_high, 8);
  const std::vector<double> y_ticks = round_ticks(0, y_high, 6);
  x_low = x_ticks.front();
  x_high = x_ticks.back();
  y_high = y_ticks.back();

  // The legend stands in columns between title and plot.
  const double column = 44 + 7.0 * static_cast<double>(longest);
  const int columns = std::clamp(static_cast<int>((kWidth - kLeft) / column), 1, 8);
  const int rows = (static_cast<int>(curves.size()) + columns - 1) / columns;
  const double top = kTop + kLegendRow * rows;
  const double bottom = top + kPlotHeight;
  const double right = kWidth - kRight;
  const auto x_of = [&](double x) { return kLeft + (x - x_low) / (x_high - x_low) * (right - kLeft); };
  const auto y_of = [&](double y) { return bottom - y / y_high * kPlotHeight; };

  Svg picture(kWidth, bottom + kBottom);
  picture.text(kLeft, 24, title, Svg::Anchor::Start, "title");
  for (size_t i = 0; i < curves.size(); ++i) {
    const size_t row = i / static_cast<size_t>(columns);
    const double x = kLeft + column * static_cast<double>(i % static_cast<size_t>(columns));
    const double y = 44 + kLegendRow * static_cast<double>(row);
    picture.line(x, y - 4, x + 20, y - 4, fmt::format("curve s{}", i % kColours));
    picture.text(x + 26, y, curves[i].name, Svg::Anchor::Start);
  }
  picture.text(kLeft, top - 12, y_label, Svg::Anchor::Start, "soft");
  for (const double y : y_ticks) {
    picture.line(kLeft, y_of(y), right, y_of(y), y == 0 ? "axis" : "grid");
    picture.text(kLeft - 8, y_of(y) + 4, short_number(y), Svg::Anchor::End, "soft");
  }
  for (const double x : x_ticks) {
    picture.line(x_of(x), bottom, x_of(x), bottom + 5, "axis");
    picture.text(x_of(x), bottom + 20, short_number(x), Svg::Anchor::Middle, "soft");
  }
  picture.text((kLeft + right) / 2, bottom + 40, x_label, Svg::Anchor::Middle, "soft");
  for (size_t i = 0; i < curves.size(); ++i) {
    std::string data;
    for (const Point& p : curves[i].points)
      data += fmt::format("{}{:.1f} {:.1f}", data.empty() ? 'M' : 'L', x_of(p.x), y_of(p.y));
    picture.path(data, fmt::format("curve s{}", i % kColours));
    for (const Point& p : curves[i].points)
      picture.circle(x_of(p.x), y_of(p.y), 2.5, fmt::format("f{}", i % kColours));
  }
  return picture.finish();
}

}  // namespace redlite::plot
