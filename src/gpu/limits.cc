#include "gpu/limits.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/prefill_inputs.h"
#include "gpu/kernels/route.h"

namespace redlite::gpu {

void check_limits(const model::Model& model, int batch) {
  const model::Config& c = model.config();
  const auto at_most = [&](std::string_view what, int value, int most) {
    if (value > most) fail("{}: {} {}; the GPU's kernels take at most {}", model.path(), what, value, most);
  };
  const auto multiple = [&](std::string_view what, int value, int of) {
    if (value % of != 0)
      fail("{}: {} {}; the GPU's kernels take multiples of {}", model.path(), what, value, of);
  };
  multiple("a width of", c.n_embd, 4);
  const auto has = [&](model::LayerKind kind) { return std::ranges::find(c.layers, kind) != c.layers.end(); };
  if (has(model::LayerKind::Attention)) {
    at_most("attention heads of", c.head_dim, AttendSizes::kMaxHeadDim);
    multiple("attention heads of", c.head_dim, 16);
    at_most("heads of one K/V head:", c.n_heads / c.n_kv_heads, AttendSizes::kMaxGroup);
  }
  if (has(model::LayerKind::DeltaNet)) {
    at_most("a DeltaNet state of", c.state_dim, DeltaStep::kMaxDim);
    at_most("DeltaNet heads:", c.n_v_heads, PrefillInput::kMaxHeads);
    at_most("a convolution over inputs:", c.conv_kernel, DeltaStep::kMaxTaps);
    for (const model::LayerWeights& layer : model.weights().layers) {
      // What is rounded comes in strips of 16.
      if (layer.delta.output && !takes_floats(layer.delta.output.type))
        multiple("a DeltaNet state of", c.state_dim, 16);
    }
  }
  at_most("experts in a layer:", c.n_experts, Route::kMaxExperts);
  at_most("experts of a token:", c.n_experts_used, ExpertsDown::kMaxExperts - 1);
  if (batch < 1) fail("a batch of {} tokens: at least one is needed", batch);
}

int choose_context(const model::Config& config, int context) {
  if (context < 0) fail("a context of {} tokens: at least one is needed", context);
  return context > 0 ? context : std::min(config.context_length, 4096);
}

}  // namespace redlite::gpu
