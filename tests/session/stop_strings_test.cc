#include "session/stop_strings.h"

#include <gtest/gtest.h>

namespace redlite::session {
namespace {

TEST(StopStrings, HoldsBackWhatMayBeABeginning) {
  const std::vector<std::string> strings = {"\n\n", "END"};
  StopStrings stop(strings);
  EXPECT_EQ(stop.push("one\n"), "one");
  EXPECT_EQ(stop.push("two EN"), "\ntwo ");
  EXPECT_EQ(stop.push("ENE"), "ENEN");
  EXPECT_EQ(stop.push("x"), "Ex");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push("E"), "");
  EXPECT_EQ(stop.push("ND of it"), "");
  ASSERT_TRUE(stop.found());
  EXPECT_EQ(stop.which(), "END");
}

TEST(StopStrings, TheFirstInTheTextCounts) {
  const std::vector<std::string> strings = {"later", "b", "bc"};
  StopStrings stop(strings);
  EXPECT_EQ(stop.push("abc later"), "a");
  EXPECT_EQ(stop.which(), "b");
}

TEST(StopStrings, WhatIsHeldBackComesAtTheEnd) {
  const std::vector<std::string> strings = {"abc"};
  StopStrings stop(strings);
  EXPECT_EQ(stop.push("xab"), "x");
  EXPECT_EQ(stop.finish(), "ab");
  const std::vector<std::string> none;
  StopStrings nothing(none);
  EXPECT_EQ(nothing.push("xab"), "xab");
}

}  // namespace
}  // namespace redlite::session
