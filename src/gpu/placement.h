#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpu/device_model.h"
#include "gpu/host_decode.h"

namespace redlite::gpu {

/// Of device memory, for graphs and what the driver takes for itself.
inline constexpr uint64_t kDeviceReserve = uint64_t{512} << 20;

/// Whether `available` bytes of host memory hold all experts, with a reserve for the process and its
/// neighbours.
bool host_holds_experts(const model::Model& model, uint64_t available);

/// Where the routed experts are to live, as far as somebody wants to say.
struct ExpertChoice {
  std::optional<Residency> residency = {};
  std::optional<uint64_t> cache_bytes = {};          ///< of device memory
  std::optional<experts::CacheSize> host_tier = {};  ///< Residency::host: of host memory
  HostOptions host = {};                             ///< ... the rest; its tier is not used
};

/// Where they live.
struct Placement {
  Residency residency = Residency::full;
  uint64_t cache_bytes = 0;  ///< of device memory
  experts::CacheSize tier;   ///< Residency::host
  std::string description;   ///< with the reasons of what was left open
};

/// Decides what was left open: everything on the device if it fits there, besides what is allocated already
/// and a reserve; else a cache that the device fills, if all experts fit into host memory; else one that the
/// host fills. Throws Error when something asked for cannot be.
Placement choose_placement(const model::Model& model, const Device& device, const ExpertChoice& choice);

}  // namespace redlite::gpu
