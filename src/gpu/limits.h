#pragma once

#include "model/model.h"

namespace redlite::gpu {

/// Throws Error on a model that the kernels are not made for, and on a batch that makes no sense.
void check_limits(const model::Model& model, int batch);

/// Tokens the state is to hold, from what was asked for; 0: the model's own limit, at most 4096.
int choose_context(const model::Config& config, int context);

}  // namespace redlite::gpu
