#include "base/progress.h"

#include <gmock/gmock.h>

namespace redlite::detail {
namespace {

TEST(Progress, LineTellsShareRateAndTimeLeft) {
  EXPECT_EQ(progress_line("converting", 250'000'000, 1'000'000'000, 5),
            "converting [######..................]  25 %   50.0 MB/s, 15 s left");
  EXPECT_EQ(progress_line("x", 1'000'000, 3'601'000'000, 1),
            "x [........................]   0 %    1.0 MB/s, 1:00 h left");
  EXPECT_EQ(progress_line("x", 1'000'000, 1'000'000, 2),
            "x [########################] 100 %    0.5 MB/s, 0 s left");
}

TEST(Progress, CountsTokensToo) {
  EXPECT_EQ(progress_line("reading", 50, 200, 2, ProgressUnit::Tokens),
            "reading [######..................]  25 %   25.0 tok/s, 6 s left");
}

TEST(Progress, SurvivesNothingToDoAndMoreThanAnnounced) {
  EXPECT_EQ(progress_line("x", 0, 0, 0), "x [########################] 100 %    0.0 MB/s");
  EXPECT_EQ(progress_line("x", 5, 2, 1), "x [########################] 100 %    0.0 MB/s, 0 s left");
}

TEST(Progress, NeverSaysHundredBeforeTheEnd) {
  EXPECT_THAT(progress_line("x", 999, 1000, 1), ::testing::HasSubstr(" 99 %"));
}

}  // namespace
}  // namespace redlite::detail
