#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace redlite::plot {

/// An SVG picture being written: a background, and shapes whose colours are classes, so that the picture is
/// drawn in dark colours where the reader prefers those. Coordinates are pixels, y downwards.
class Svg {
 public:
  Svg(double width, double height);

  /// `text` may be any bytes: what XML forbids is escaped or left out.
  enum class Anchor : uint8_t { Start, Middle, End };
  void text(double x, double y, std::string_view text, Anchor anchor, std::string_view classes = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void circle(double x, double y, double radius, std::string_view classes);
  void rect(double x, double y, double width, double height, std::string_view classes);
  /// A path of SVG path data, not escaped.
  void path(std::string_view data, std::string_view classes);
  void begin_group(std::string_view attributes);
  void end_group();

  /// The whole picture.
  std::string finish() const;

 private:
  double width_, height_;
  std::string body_;
};

/// `text` fit for XML: markup escaped, control characters left out, invalid UTF-8 replaced by '?'.
std::string escape_xml(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten apart) that cover [low, high], about `wanted` of them.
std::vector<double> round_ticks(double low, double high, int wanted);

/// A number as short as its digits allow: 0.25, 4096, 1.2e7.
std::string short_number(double value);

}  // namespace redlite::plot
