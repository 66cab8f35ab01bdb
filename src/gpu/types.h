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
    return use.template operator()<Type::name>()
    RL_CASE(F32);
    RL_CASE(F16);
    RL_CASE(BF16);
    RL_CASE(Q4_0);
    RL_CASE(Q4_1);
    RL_CASE(Q5_0);
    RL_CASE(Q5_1);
    RL_CASE(Q8_0);
    RL_CASE(Q2_K);
    RL_CASE(Q3_K);
    RL_CASE(Q4_K);
    RL_CASE(Q5_K);
    RL_CASE(Q6_K);
    RL_CASE(IQ2_XXS);
    RL_CASE(IQ2_XS);
    RL_CASE(IQ2_S);
    RL_CASE(IQ3_XXS);
    RL_CASE(IQ3_S);
    RL_CASE(IQ1_S);
    RL_CASE(IQ1_M);
    RL_CASE(IQ4_NL);
    RL_CASE(IQ4_XS);
    RL_CASE(MXFP4);
#undef RL_CASE
  }
  RL_CHECK(false, "type {}", static_cast<uint32_t>(type));
}

}  // namespace redlite::gpu
