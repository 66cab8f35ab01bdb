#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace redlite::cpu {

/// The exponential function of the kernels, one definition for plain and vectorised code so that both give
/// the same bits: x = n ln 2 + r, e^r by a polynomial of degree 7 (Taylor; |r| <= 0.347), times 2^n in two
/// steps so that subnormal results are right. Within 2 units in the last place for normal results.
struct ExpConstants {
  static constexpr float kMin = -104.0f;  ///< e^x rounds to 0 below
  static constexpr float kMax = 89.0f;    ///< and to infinity above
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62e400p-1f;  ///< 15 bits: n times it is exact
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kPolynomial[8] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                           1.0f / 6,    1.0f / 2,   1.0f,       1.0f};
  static constexpr float kRound = 0x1.8p23f;  ///< adding it rounds |x| < 2^22 to an integer, ties to even
};

/// Nearest integer, ties to even, of |x| < 2^22. The low bits of x + 1.5 * 2^23 are the result.
inline int round_to_int(float x) {
  return std::bit_cast<int32_t>(x + ExpConstants::kRound) - std::bit_cast<int32_t>(ExpConstants::kRound);
}

inline float exp(float x) {
  using C = ExpConstants;
  if (!(x == x)) return x;
  x = std::clamp(x, C::kMin, C::kMax);
  const int n = round_to_int(x * C::kLog2E);
  const float nf = static_cast<float>(n);
  float r = std::fmaf(-nf, C::kLn2High, x);
  r = std::fmaf(-nf, C::kLn2Low, r);
  float p = C::kPolynomial[0];
  for (int i = 1; i < 8; ++i) p = std::fmaf(p, r, C::kPolynomial[i]);
  const int half = n >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((n - half + 127) << 23);
  return p * a * b;
}

}  // namespace redlite::cpu
