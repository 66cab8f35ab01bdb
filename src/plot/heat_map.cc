#include "plot/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "plot/svg.h"

namespace redlite::plot {
namespace {

constexpr int kShades = 12;
constexpr double kLeft = 56, kRight = 24, kTop = 44, kBottom = 92;
constexpr double kWidth = 1000, kMostHeight = 520, kLargestCell = 22;

int shade_of(uint64_t count, uint64_t most) {
  if (count == 0) return 0;
  const double share = std::sqrt(static_cast<double>(count) / static_cast<double>(most));
  return std::clamp(static_cast<int>(std::ceil(share * kShades)), 1, kShades);
}

/// The largest count that has this shade.
uint64_t upper_end(int shade, uint64_t most) {
  const double share = static_cast<double>(shade) / kShades;
  return static_cast<uint64_t>(share * share * static_cast<double>(most));
}

}  // namespace

std::string HeatMap::svg() const {
  RL_CHECK(rows > 0 && columns > 0 && counts.size() == rows * columns, "{} counts", counts.size());
  const uint64_t most = std::max<uint64_t>(*std::max_element(counts.begin(), counts.end()), 1);
  const double cell_width = std::min((kWidth - kLeft - kRight) / static_cast<double>(columns), kLargestCell);
  const double cell_height = std::min(kMostHeight / static_cast<double>(rows), std::max(cell_width, 8.0));
  const double width = cell_width * static_cast<double>(columns);
  const double height = cell_height * static_cast<double>(rows);

  Svg picture(std::max(kLeft + width + kRight, 480.0), kTop + height + kBottom);
  picture.text(kLeft, 24, title, Svg::Anchor::Start, "title");
  const size_t every_row = static_cast<size_t>(std::ceil(14 / cell_height));
  for (size_t r = 0; r < rows; r += every_row)
    picture.text(kLeft - 6, kTop + (static_cast<double>(r) + 0.5) * cell_height + 4, fmt::format("{}", r),
                 Svg::Anchor::End, "soft");
  const std::vector<double> ticks = round_ticks(0, static_cast<double>(columns), 8);
  for (const double tick : ticks) {
    if (tick >= static_cast<double>(columns)) break;
    picture.text(kLeft + (tick + 0.5) * cell_width, kTop + height + 16, short_number(tick),
                 Svg::Anchor::Middle, "soft");
  }
  picture.text(kLeft + width / 2, kTop + height + 36, fmt::format("{} ({} downwards)", x_label, y_label),
               Svg::Anchor::Middle, "soft");

  // One path a shade, in units of cells: a run of equal cells is "Mx yh3v1h-3z".
  std::array<std::string, kShades + 1> paths;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns;) {
      const int shade = shade_of(counts[r * columns + c], most);
      size_t end = c + 1;
      while (end < columns && shade_of(counts[r * columns + end], most) == shade) ++end;
      if (shade > 0)
        paths[static_cast<size_t>(shade)] += fmt::format("M{} {}h{}v1h-{}z", c, r, end - c, end - c);
      c = end;
    }
  }
  picture.begin_group(fmt::format("transform=\"translate({},{}) scale({:.4f},{:.4f})\"", kLeft, kTop,
                                  cell_width, cell_height));
  for (int shade = 1; shade <= kShades; ++shade) {
    const std::string& data = paths[static_cast<size_t>(shade)];
    if (!data.empty()) picture.path(data, fmt::format("h{}", shade));
  }
  picture.end_group();

  const double legend = kTop + height + 54;
  for (int shade = 1; shade <= kShades; ++shade)
    picture.rect(kLeft + 24 * (shade - 1), legend, 24, 12, fmt::format("h{}", shade));
  picture.text(kLeft, legend + 28, "1", Svg::Anchor::Start, "soft");
  picture.text(kLeft + 12 * kShades, legend + 28, fmt::format("{}", upper_end(kShades / 2, most)),
               Svg::Anchor::Middle, "soft");
  picture.text(kLeft + 24 * kShades, legend + 28, fmt::format("{} times", most), Svg::Anchor::End, "soft");
  return picture.finish();
}

}  // namespace redlite::plot
