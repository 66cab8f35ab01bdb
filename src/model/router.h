#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace redlite::model {

/// The order in which a router logit is summed, the same on every runner, so that equal inputs select equal
/// experts bit for bit: 16 lanes, lane j taking x[i] * w[i] for i % 16 == j with fused multiply-adds in
/// rising i; then lanes are folded in halves: j += j + 8, j += j + 4, j += j + 2, j += j + 1.
inline constexpr int kRouterLanes = 16;

/// One logit; n is any positive length (the tail fills the lanes from 0).
float router_logit(const float* w, const float* x, int n);

/// e^x of the experts' shares, for x <= 0, the same bits on every runner: x = n ln 2 + r, e^r by its Taylor
/// polynomial of degree 7, times 2^n, every step rounded to F32. Within 2 units in the last place; 0 below
/// -87.
constexpr float router_exp(float x) {
  if (!(x > -87.0f)) return x == x ? 0.0f : x;
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  const float n = (x * 0x1.715476p+0f + kRound) - kRound;
  const float r = (x - n * 0x1.62e400p-1f) - n * 0x1.7f7d1cp-20f;  // the first product is exact
  float sum = 1.0f / 5040 * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1;
  sum = sum * r + 1;
  return sum * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

/// The used experts of one token, best first. ids[i] is the id with the i-th highest logit, of equal ones the
/// lower id first (a NaN comes after all numbers). Their weights are the softmax over them: all F32, in this
/// order, e[i] = router_exp(logit[ids[i]] - logit[ids[0]]); sum = the sum of e[i] in rising i; weights[i] =
/// e[i] / sum * scale. (The same as a softmax over all experts whose selected part is normalised. Models keep
/// that part's sum at 2^-14 or more before they divide by it: the best `used` of n experts always have used /
/// n.) ids and weights have n_experts_used elements, at least 1 and at most n_experts.
void select_experts(std::span<const float> logits, float scale, std::span<int32_t> ids,
                    std::span<float> weights);

}  // namespace redlite::model
