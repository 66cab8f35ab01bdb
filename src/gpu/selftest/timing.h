#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gpu/device.h"

namespace redlite::gpu {

/// How long a kernel takes as a link of a chain: launches in one graph, each allowed to start early, over
/// more matrices than the caches hold.
struct TimingLine {
  std::string name;          ///< "project Q4_K 12288 x 2048, norm"
  double microseconds = 0;   ///< of a link, the median of the replays
  double gb_per_second = 0;  ///< weights (or keys and values; or states, both ways)
};

/// Times what kernel_selftest() checks, for the shapes of an 80B model's layers; groups whose name contains
/// `filter`.
void time_kernels(Device& device, std::string_view filter,
                  const std::function<void(const TimingLine&)>& report);

}  // namespace redlite::gpu
