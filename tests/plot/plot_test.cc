#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "plot/heat_map.h"
#include "plot/line_chart.h"
#include "plot/svg.h"

namespace redlite::plot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Every element is closed in its order, and attributes are quoted.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag(R"re(<(/?)([a-z]+)((?: [a-zA-Z0-9:-]+="[^"<>]*")*)(/?)>)re");
  size_t brackets = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end; ++it) {
    ++brackets;
    if (!(*it)[1].str().empty()) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2].str());
      open.pop_back();
    } else if ((*it)[4].str().empty()) {
      open.push_back((*it)[2].str());
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(brackets, static_cast<size_t>(std::count(svg.begin(), svg.end(), '<')))
      << "a tag of another form";
}

std::vector<std::smatch> all(const std::string& text, const std::regex& what) {
  return {std::sregex_iterator(text.begin(), text.end(), what), {}};
}

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(escape_xml("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(escape_xml("\x01\x1f tab\tend\x7f"), " tabend");
  EXPECT_EQ(escape_xml("\xc3\xa9 \xe2\x82\xac"), "\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(escape_xml("\xff\xc3("), std::string("?") + "?(");
  EXPECT_EQ(escape_xml("\xe2\x82"), "??");
}

TEST(Svg, TicksAreRoundAndCover) {
  EXPECT_THAT(round_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(3, 9.5, 4), ElementsAre(2, 4, 6, 8, 10));
  EXPECT_EQ(round_ticks(0, 17316, 8).back(), 20000);
  EXPECT_EQ(round_ticks(0, 0, 5).front(), 0);
  EXPECT_GT(round_ticks(0, 0, 5).back(), 0);
  EXPECT_GE(round_ticks(7, 7, 5).back(), 7);
}

TEST(LineChart, PointsLieWhereTheNumbersAre) {
  LineChart chart{"a < b", "x", "y", {{"one & only", {{0, 0}, {5, 50}, {10, 100}}}, {"two", {{0, 100}}}}};
  const std::string svg = chart.svg();
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("one &amp; only"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  const auto circles = all(svg, std::regex(R"re(<circle cx="([0-9.]+)" cy="([0-9.]+)")re"));
  ASSERT_EQ(circles.size(), 4u);
  const auto x = [&](size_t i) { return std::stod(circles[i][1]); };
  const auto y = [&](size_t i) { return std::stod(circles[i][2]); };
  EXPECT_NEAR(x(1), (x(0) + x(2)) / 2, 0.2);
  EXPECT_NEAR(y(1), (y(0) + y(2)) / 2, 0.2);
  EXPECT_GT(y(0), y(2)) << "upwards";
  EXPECT_EQ(x(3), x(0));
  EXPECT_EQ(y(3), y(2));
}

TEST(LineChart, NothingLeavesThePicture) {
  LineChart chart{"t", "x", "y", {}};
  for (int i = 0; i < 11; ++i)
    chart.curves.push_back(
        {"a curve with a long name " + std::to_string(i), {{17.0, 1e-3 * i}, {17316, 480}}});
  const std::string svg = chart.svg();
  expect_well_formed(svg);
  const auto size = all(svg, std::regex(R"re(viewBox="0 0 ([0-9]+) ([0-9]+)")re"));
  for (const std::smatch& m : all(svg, std::regex(R"re( (x|x1|x2|cx|y|y1|y2|cy)="([0-9.-]+)")re"))) {
    EXPECT_GE(std::stod(m[2]), 0);
    EXPECT_LE(std::stod(m[2]), std::stod(size[0][m[1].str().find('x') != std::string::npos ? 1 : 2]));
  }
}

TEST(HeatMap, ShadesRiseWithCountsAndEmptyCellsStayEmpty) {
  HeatMap map{"t", "experts", "layers", 2, 4, {0, 1, 25, 25, 100, 0, 0, 1}};
  const std::string svg = map.svg();
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("<path d=\"M1 0h1v1h-1zM3 1h1v1h-1z\" class=\"h2\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path d=\"M2 0h2v1h-2z\" class=\"h6\"/>")) << "a run of equal cells";
  EXPECT_THAT(svg, HasSubstr("<path d=\"M0 1h1v1h-1z\" class=\"h12\"/>"));
  EXPECT_EQ(all(svg, std::regex("<path")).size(), 3u);
  HeatMap empty{"t", "x", "y", 1, 1, {0}};
  expect_well_formed(empty.svg());
}

}  // namespace
}  // namespace redlite::plot
