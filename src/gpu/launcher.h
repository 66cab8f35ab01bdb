#pragma once

#include "gpu/device.h"
#include "gpu/profile.h"

namespace redlite::gpu {

/// Where and how a pass puts its kernels.
struct Launcher {
  Stream& stream;
  bool concurrent = true;      ///< kernels start before those in front of them have ended
  Profile* profile = nullptr;  ///< times each of them; nullptr: none does

  template <typename K>
  void launch(const Shape& shape, const typename K::Params& params) const {
    Shape with_start = shape;
    with_start.early_start = shape.early_start && concurrent;
    const auto run = [&] { stream.launch<K>(with_start, params); };
    if (profile != nullptr) {
      profile->time(K::kName, run);
    } else {
      run();
    }
  }
};

}  // namespace redlite::gpu
