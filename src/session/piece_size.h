#pragma once

namespace redlite::session {

/// How many tokens of a prompt to read at once.
///
/// A piece of n tokens takes about fixed + n * each seconds; fixed is small when all weights are in memory
/// and large when a pass has experts read from disk, however few its tokens are. A piece is made to last a
/// certain time, but not so small that its fixed part is more than a certain share of it.
class PieceSize {
 public:
  /// `most`: tokens of a piece.
  explicit PieceSize(int most) : most_(most) {}

  /// A piece of n tokens took so long.
  void took(int n, double seconds);

  struct Aim {
    double seconds;
    double fixed_share;
  };
  /// While others wait for their next token, and while nobody else is there: but someone may come.
  static constexpr Aim kShared = {0.25, 0.5}, kAlone = {2, 0.2};
  int next(Aim aim) const;

 private:
  int most_;
  // Sums for a weighted line through what was seen, the past fading.
  double weight_ = 0, n_ = 0, nn_ = 0, t_ = 0, nt_ = 0;
};

}  // namespace redlite::session
