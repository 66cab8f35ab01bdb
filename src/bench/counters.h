#pragma once

#include "bench/measure.h"
#include "cpu/cpu_runner.h"
#include "gpu/gpu_runner.h"

namespace redlite::bench {

/// What a runner has counted so far.
Counters counters_of(const cpu::CpuRunner& runner);
/// The GPU's selections only: what it reads comes over the bus.
Counters counters_of(const gpu::GpuRunner& runner);

}  // namespace redlite::bench
