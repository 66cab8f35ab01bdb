#pragma once

#include "gpu/gpu_runner.h"
#include "gpu/host_decode.h"

namespace redlite::gpu {

/// Experts at home in each of the three ways, with a cache so small that much is missed.
inline std::vector<ExpertChoice> all_residencies(const model::Model& model) {
  return {{.residency = Residency::full},
          {.residency = Residency::device, .cache_bytes = 2 * DeviceModel::least_cache_bytes(model)},
          {.residency = Residency::host,
           .cache_bytes = HostDecode::least_cache_bytes(model) * 3 / 2,
           .host_tier = experts::CacheSize{}}};
}

}  // namespace redlite::gpu
