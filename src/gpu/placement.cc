#include "gpu/placement.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"

namespace redlite::gpu {
namespace {

/// Of host memory, for the process and its neighbours.
constexpr uint64_t kHostReserve = uint64_t{1} << 30;

uint64_t to_mib(uint64_t bytes) {
  return (bytes + (uint64_t{1} << 20) - 1) >> 20;
}
uint64_t less(uint64_t bytes, uint64_t taken) {
  return bytes - std::min(bytes, taken);
}

experts::CacheSize choose_tier(const model::Model& model, const ExpertChoice& choice, uint64_t available,
                               std::string& description) {
  const uint64_t all = experts::ExpertCache::full_bytes(model);
  const uint64_t least = experts::ExpertCache::minimum_bytes(model);
  experts::CacheSize tier;
  std::string reason;
  if (choice.host_tier) {
    tier = *choice.host_tier;
    if (tier.kind == experts::CacheSize::Kind::Bounded && tier.bytes < least)
      fail(
          "{} MiB of host memory cannot hold one layer's experts of one token; the least that works is "
          "--host-cache-mib {}",
          tier.bytes >> 20, to_mib(least));
  } else {
    const uint64_t left = less(available, kHostReserve);
    if (left < model.expert_bytes()) {
      if (left < least)
        fail(
            "{}: {} MiB of host memory are available, with {} MiB in reserve; one token's experts need {} "
            "MiB: free some memory, or name a size with --host-cache-mib",
            model.path(), available >> 20, kHostReserve >> 20, to_mib(least));
      tier = {experts::CacheSize::Kind::Bounded, std::min(left, all)};
    }
    reason = fmt::format(" (with {} MiB available)", available >> 20);
  }
  description += tier.kind == experts::CacheSize::Kind::Full
                     ? fmt::format(", from the whole file in host memory{}", reason)
                     : fmt::format(", from {} MiB of host memory{}", to_mib(tier.bytes), reason);
  return tier;
}

}  // namespace

bool host_holds_experts(const model::Model& model, uint64_t available) {
  return model.expert_bytes() <= less(available, kHostReserve);
}

Placement choose_placement(const model::Model& model, const Device& device, const ExpertChoice& choice) {
  const uint64_t all = DeviceModel::expert_bytes(model);
  const uint64_t free = device.free_memory(), room = less(free, kDeviceReserve);
  const uint64_t available = available_memory();
  Placement p;
  p.cache_bytes = std::min(all, choice.cache_bytes.value_or(room));
  std::string why;
  if (choice.residency) {
    p.residency = *choice.residency;
    if (p.residency == Residency::full && choice.cache_bytes.value_or(all) < all)
      fail("--residency full needs all {} MiB of experts on the GPU: leave --cache-mib out", to_mib(all));
    if (p.residency == Residency::full && free < all)
      fail(
          "{} MiB of experts do not fit into the {} MiB that are free on the GPU; take --residency device or "
          "host",
          to_mib(all), free >> 20);
  } else {
    const bool fits = p.cache_bytes == all && all <= room;
    const bool host_holds = host_holds_experts(model, available);
    p.residency = fits ? Residency::full : host_holds ? Residency::device : Residency::host;
    why = fmt::format("; chosen with {} MiB free on the GPU besides weights and state", free >> 20);
    if (!fits) why += fmt::format(", {} MiB available in host memory", available >> 20);
  }
  switch (p.residency) {
    case Residency::full:
      p.cache_bytes = all;
      p.description = fmt::format("all {} MiB of experts on the GPU", to_mib(all));
      break;
    case Residency::device:
      p.description = fmt::format("{} MiB of {} on the GPU, which fills it from the file in host memory",
                                  to_mib(p.cache_bytes), to_mib(all));
      break;
    case Residency::host: {
      const uint64_t slots = device_slot_classes(model).full_bytes();
      p.cache_bytes = std::min(slots, choice.cache_bytes.value_or(room));
      p.description =
          fmt::format("{} MiB of {} on the GPU, which the host fills", to_mib(p.cache_bytes), to_mib(slots));
      p.tier = choose_tier(model, choice, available, p.description);
      break;
    }
  }
  p.description += why;
  return p;
}

}  // namespace redlite::gpu
