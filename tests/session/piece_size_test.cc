#include "session/piece_size.h"

#include <gtest/gtest.h>

namespace redlite::session {
namespace {

/// Where the sizes settle when a pass takes fixed + n * each seconds.
int settled(double fixed, double each, PieceSize::Aim aim) {
  PieceSize size(2048);
  size.took(7, fixed + 7 * each);
  for (int i = 0; i < 30; ++i) {
    const int n = size.next(aim);
    size.took(n, fixed + n * each);
  }
  return size.next(aim);
}

TEST(PieceSize, LastsAsLongAsAimedAt) {
  const PieceSize::Aim aim = {0.25, 0.5};
  EXPECT_NEAR(settled(0, 0.001, aim), 250, 2);
  EXPECT_NEAR(settled(0.05, 0.001, aim), 200, 4);
  EXPECT_EQ(settled(0, 1e-6, aim), 2048);
  EXPECT_EQ(settled(0, 1, aim), 16) << "a piece has to be worth while";
}

TEST(PieceSize, WhatAPassTakesAnywayIsSharedByManyTokens) {
  EXPECT_NEAR(settled(5, 0.01, {0.25, 0.5}), 500, 10);
  EXPECT_NEAR(settled(5, 0.01, {2, 0.2}), 2000, 40);
}

TEST(PieceSize, BeginsModestly) {
  EXPECT_EQ(PieceSize(2048).next(PieceSize::kShared), 64);
  EXPECT_EQ(PieceSize(8).next(PieceSize::kShared), 8);
}

}  // namespace
}  // namespace redlite::session
