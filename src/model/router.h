#pragma once

#include <cstdint>
#include <span>

namespace redlite::model {

/// The order in which a router logit is summed, the same on every runner, so that equal inputs select equal
/// experts bit for bit: 16 lanes, lane j taking x[i] * w[i] for i % 16 == j with fused multiply-adds in
/// rising i; then lanes are folded in halves: j += j + 8, j += j + 4, j += j + 2, j += j + 1.
inline constexpr int kRouterLanes = 16;

/// One logit; n is any positive length (the tail fills the lanes from 0).
float router_logit(const float* w, const float* x, int n);

/// The used experts of one token, best first. ids[i] is the id with the i-th highest logit, of equal ones the
/// lower id first (a NaN comes after all numbers). All F32, in this order: e[j] = exp(logit[j] -
/// logit[ids[0]]); total = the sum of e[j] in rising j; p[i] = e[ids[i]] / total; sum = the sum of p[i] in
/// rising i, at least 2^-14; weights[i] = p[i] / sum * scale. ids and weights have n_experts_used elements,
/// at least 1 and at most n_experts.
void select_experts(std::span<const float> logits, float scale, std::span<int32_t> ids,
                    std::span<float> weights);

}  // namespace redlite::model
