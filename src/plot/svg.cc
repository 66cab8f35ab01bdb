#include "plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace redlite::plot {
namespace {

struct Colours {
  std::string_view background, ink, soft, grid;
  std::array<std::string_view, 8> series;   ///< the colour-blind can tell them apart
  std::array<std::string_view, 12> shades;  ///< from faint to strong
};

constexpr Colours kLight = {
    "#fff",
    "#222",
    "#666",
    "#e3e3e3",
    {"#0072b2", "#d55e00", "#009e73", "#a3478f", "#8a6d00", "#3b3b3b", "#3a9bd9", "#b3321e"},
    {"#eaf1fb", "#d6e5f7", "#bfd7f2", "#a6c7ec", "#8cb6e5", "#72a4dc", "#5a91d0", "#457ec2", "#336bb0",
     "#24589b", "#174683", "#0b3367"}};
constexpr Colours kDark = {
    "#14171c",
    "#e6e6e6",
    "#a0a6ae",
    "#2c323a",
    {"#56b4e9", "#ff9248", "#3ecfa0", "#e08ac9", "#e5c44a", "#c8c8c8", "#8ecdf2", "#ff7a66"},
    {"#1a2330", "#1d2d44", "#203858", "#23446d", "#265183", "#2b5f99", "#346fae", "#4481c1", "#5b95d1",
     "#7aabdf", "#9fc4ec", "#cbe0f8"}};

// Plain rules, no variables: not every program that draws SVG knows those.
std::string rules(const Colours& c) {
  std::string css =
      fmt::format(".bg{{fill:{}}}text{{fill:{}}}text.soft{{fill:{}}}.grid{{stroke:{}}}.axis{{stroke:{}}}",
                  c.background, c.ink, c.soft, c.grid, c.soft);
  for (size_t i = 0; i < c.series.size(); ++i)
    css += fmt::format("\n.s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, c.series[i]);
  css += '\n';
  for (size_t i = 0; i < c.shades.size(); ++i) css += fmt::format(".h{}{{fill:{}}}", i + 1, c.shades[i]);
  return css;
}

std::string style() {
  return fmt::format(
      "<style>\n.title{{font-size:15px;font-weight:600}}.curve{{fill:none;stroke-width:2;stroke-linejoin:"
      "round}}\n"
      "{}\n@media (prefers-color-scheme:dark){{\n{}\n}}\n</style>\n",
      rules(kLight), rules(kDark));
}

/// Length of the UTF-8 sequence that starts here; 0 if it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : (lead & 0xf0) == 0xe0       ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

Svg::Svg(double width, double height) : width_(width), height_(height) {}

void Svg::text(double x, double y, std::string_view text, Anchor anchor, std::string_view classes) {
  const char* const anchors[] = {"start", "middle", "end"};
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y,
                       anchors[static_cast<int>(anchor)], classes, escape_xml(text));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1,
                       y1, x2, y2, classes);
}

void Svg::circle(double x, double y, double radius, std::string_view classes) {
  body_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\"/>\n", x, y, radius, classes);
}

void Svg::rect(double x, double y, double width, double height, std::string_view classes) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n",
                       x, y, width, height, classes);
}

void Svg::path(std::string_view data, std::string_view classes) {
  body_ += fmt::format("<path d=\"{}\" class=\"{}\"/>\n", data, classes);
}

void Svg::begin_group(std::string_view attributes) {
  body_ += fmt::format("<g {}>\n", attributes);
}

void Svg::end_group() {
  body_ += "</g>\n";
}

std::string Svg::finish() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n{2}<rect width=\"100%\" height=\"100%\" "
      "class=\"bg\"/>\n{3}</svg>\n",
      width_, height_, style(), body_);
}

std::string escape_xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      out += '?';
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (length > 1 || (c >= 0x20 && c != 0x7f)) {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, int wanted) {
  if (!(high > low)) high = low + std::max(std::abs(low), 1.0);
  const double rough = (high - low) / std::max(wanted, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::floor(low / step);
  for (int i = 0; ticks.empty() || ticks.back() < high - 1e-9 * step; ++i)
    ticks.push_back((first + i) * step);
  return ticks;
}

std::string short_number(double value) {
  return fmt::format("{:.5g}", value);
}

}  // namespace redlite::plot
