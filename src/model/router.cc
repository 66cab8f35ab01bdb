#include "model/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace redlite::model {

float router_logit(const float* w, const float* x, int n) {
  std::array<float, kRouterLanes> lanes{};
  for (int i = 0; i < n; ++i) {
    float& lane = lanes[static_cast<size_t>(i % kRouterLanes)];
    lane = std::fmaf(x[i], w[i], lane);
  }
  for (size_t half = kRouterLanes / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

void select_experts(std::span<const float> logits, float scale, std::span<int32_t> ids,
                    std::span<float> weights) {
  const size_t used = ids.size();
  RL_CHECK(used >= 1 && used <= logits.size() && weights.size() == used, "{} of {}", used, logits.size());
  // The `used` best so far, best first. Only a strictly greater logit passes an earlier one: ties go to the
  // lower id. A NaN is never greater than anything, so it comes after all numbers.
  const auto better = [](float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); };
  size_t found = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    if (found == used && !better(logits[e], logits[static_cast<size_t>(ids[used - 1])])) continue;
    size_t place = found < used ? found++ : used - 1;
    for (; place > 0 && better(logits[e], logits[static_cast<size_t>(ids[place - 1])]); --place)
      ids[place] = ids[place - 1];
    ids[place] = static_cast<int32_t>(e);
  }

  const float largest = logits[static_cast<size_t>(ids[0])];
  float sum = 0;
  for (size_t i = 0; i < used; ++i) {
    weights[i] = router_exp(logits[static_cast<size_t>(ids[i])] - largest);
    sum += weights[i];
  }
  for (float& weight : weights) weight = weight / sum * scale;
}

}  // namespace redlite::model
