#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "quant/type.h"

namespace redlite::quant {

/// The first block whose scale (of F32, F16 and BF16: whose value) is not a finite number, as its number in
/// `blocks`, which are whole blocks of the type without alignment. nullopt: all are finite, and so is
/// whatever they decode to.
std::optional<size_t> first_not_finite(Type type, std::span<const std::byte> blocks);

}  // namespace redlite::quant
