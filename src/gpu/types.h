#pragma once

#include <utility>

#include "base/error.h"
#include "quant/type.h"

namespace redlite::gpu {

/// Calls `use.template operator()<T>()` with `type` as a constant.
template <typename Use>
decltype(auto) with_type(quant::Type type, Use&& use) {
  using quant::Type;
  switch (type) {
#define RL_CASE(name) \
  case Type::name:    \
    return use.template operator()<Type::name>();
    RL_FOR_EACH_TYPE(RL_CASE)
#undef RL_CASE
  }
  RL_CHECK(false, "type {}", static_cast<uint32_t>(type));
}

}  // namespace redlite::gpu
