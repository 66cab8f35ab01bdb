#pragma once

#include "bench/measure.h"
#include "cpu/cpu_runner.h"
#include "gpu/gpu_runner.h"

namespace redlite::bench {

/// What a runner has counted so far.
Counters counters_of(const cpu::CpuRunner& runner);
/// bytes_read: over the bus where the device manages the cache, from the file where the host does.
Counters counters_of(const gpu::GpuRunner& runner);

}  // namespace redlite::bench
