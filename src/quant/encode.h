#pragma once

#include <cstddef>

#include "quant/type.h"

namespace redlite::quant {

/// True for the types that encode() writes: F32, F16, BF16, Q8_0.
bool can_encode(Type type);

/// Encodes `values` values (a multiple of the type's block) to `dst`; the same bytes as llama.cpp writes.
/// `dst` needs no alignment. Returns false, with `dst` unspecified, when a value is too large for the type
/// or, in Q8_0, not finite.
[[nodiscard]] bool encode(Type type, const float* src, std::byte* dst, size_t values);

}  // namespace redlite::quant
