#include "session/piece_size.h"

#include <algorithm>

namespace redlite::session {

void PieceSize::took(int n, double seconds) {
  constexpr double kFade = 0.9;
  for (double* sum : {&weight_, &n_, &nn_, &t_, &nt_}) *sum *= kFade;
  weight_ += 1;
  n_ += n;
  nn_ += static_cast<double>(n) * n;
  t_ += seconds;
  nt_ += n * seconds;
}

int PieceSize::next(Aim aim) const {
  constexpr double kLeast = 16, kFirst = 64;  // before anything is known
  const double most = most_;
  double n = kFirst;
  if (weight_ > 0) {
    const double mean_n = n_ / weight_, mean_t = t_ / weight_;
    const double variance = nn_ / weight_ - mean_n * mean_n;
    const double average = mean_t / mean_n;
    double each = average;  // nothing fixed, where only one size was seen
    if (variance > 1)
      each = std::clamp((nt_ / weight_ - mean_n * mean_t) / variance, average * 1e-3, average);
    const double fixed = mean_t - each * mean_n;
    n = std::max(aim.seconds - fixed, fixed * (1 / aim.fixed_share - 1)) / each;
  }
  return static_cast<int>(std::clamp(n, std::min(kLeast, most), most));
}

}  // namespace redlite::session
