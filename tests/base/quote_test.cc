#include "base/quote.h"

#include <gtest/gtest.h>

namespace redlite {
namespace {

TEST(Quote, EscapesWhatCouldReachTheTerminal) {
  EXPECT_EQ(quote("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(quote("\x1b[31m\n\\\x7f\xc3\xa9"), R"('\x1b[31m\x0a\x5c\x7f\xc3\xa9')");
  EXPECT_EQ(quote(std::string_view("\0", 1)), R"('\x00')");
}

TEST(Quote, CutsLongText) {
  EXPECT_EQ(quote(std::string(64, 'a')), "'" + std::string(64, 'a') + "'");
  EXPECT_EQ(quote(std::string(65, 'a')), "'" + std::string(64, 'a') + "...'");
  EXPECT_EQ(quote("abc", 2), "'ab...'");
}

}  // namespace
}  // namespace redlite
