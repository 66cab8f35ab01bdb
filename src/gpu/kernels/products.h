#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "gpu/kernel.h"
#include "gpu/kernels/step.h"

namespace redlite::gpu {

struct Project;
struct ExpertsGateUp;
struct ExpertsDown;

/// The kernels that multiply with weights, as one, so that the code of all types exists once.
struct Products {
  static constexpr const char* kName = "products";
  static constexpr int kThreads = kStepThreads, kBlocksOfMultiprocessor = 3;
  enum class What : uint32_t { project, gate_up, down };
  struct Params {
    What what;
    alignas(16) std::byte of_part[1024];  // its Params
  };
  struct Shared;
  static RL_RUN void run(const Params& p, Shared& shared);

  template <typename PartParams>
  static Params of(const PartParams& params) {
    static_assert(sizeof(PartParams) <= sizeof(Params::of_part) && std::is_trivially_copyable_v<PartParams>);
    Params out{};
    out.what = PartParams::kWhat;
    std::memcpy(out.of_part, &params, sizeof params);
    return out;
  }
};

}  // namespace redlite::gpu
