#include "bench/counters.h"

namespace redlite::bench {

Counters counters_of(const cpu::CpuRunner& runner) {
  const experts::CacheStats s = runner.cache_stats();
  const cpu::StageTimes t = runner.stage_times();
  return {s.hits,
          s.hits + s.misses + s.prefetch_late,
          s.bytes_read,
          s.stall_seconds,
          {{"embedding", t.embedding},
           {"attention", t.attention},
           {"delta_net", t.delta_net},
           {"router", t.router},
           {"experts", t.experts},
           {"output", t.output}}};
}

Counters counters_of(const gpu::GpuRunner& runner) {
  const gpu::GpuRunner::Selections selections = runner.selections();
  const experts::CacheStats s = runner.cache_stats();
  return {selections.hits, selections.all, s.bytes_read, s.stall_seconds, {}};
}

}  // namespace redlite::bench
