#pragma once

#include <cstddef>

#include "quant/type.h"

namespace redlite::quant {

/// Decodes `values` values (a multiple of the type's block) from `src` to binary32, exactly as the format
/// defines them. `src` needs no alignment.
void decode(Type type, const std::byte* src, float* dst, size_t values);

}  // namespace redlite::quant
