#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experts/cache.h"

namespace redlite::session {

/// The expert cache, layers x experts. Two pictures, compared, tell what happened in between.
struct ExpertMap {
  int n_layers = 0;
  int n_experts = 0;
  std::vector<experts::ExpertUse> cells;  ///< [n_layers][n_experts]; empty where the runner has no such thing
};

/// What a runner tells about itself between two passes; counters since its construction.
struct RunnerReport {
  experts::CacheStats cache;
  std::vector<std::pair<std::string, double>> stage_seconds;  ///< where the time of its passes went
  ExpertMap experts;                                          ///< only where asked for
};
/// Fills a report; `with_experts`: the map, too. Called by the engine's thread between passes.
using Reporter = std::function<void(RunnerReport& report, bool with_experts)>;

/// Counters since the engine's construction, unless said otherwise.
struct Statistics {
  double uptime_seconds = 0;

  int queued = 0;    ///< requests waiting, now
  int active = 0;    ///< requests being answered, now
  int parallel = 0;  ///< most that are answered at a time

  uint64_t requests = 0;  ///< accepted; those that ended are one of the next three
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;  ///< not accepted, the queue being full

  uint64_t prompt_tokens = 0;  ///< of requests that left the queue
  uint64_t cached_tokens = 0;  ///< ... of these, those that were not read
  uint64_t read_tokens = 0;    ///< tokens of prompts computed
  uint64_t answer_tokens = 0;
  uint64_t decode_passes = 0;  ///< each of one token of one or more answers
  double prefill_seconds = 0;  ///< wall time of the passes over prompts
  double decode_seconds = 0;   ///< wall time of decode passes, sampling included
  double prefill_rate = 0;     ///< tokens a second, lately; 0: none yet
  double decode_rate = 0;      ///< tokens a second of all answers together, lately

  RunnerReport runner;  ///< without the map

  int states_in_memory = 0;
  uint64_t state_bytes_in_memory = 0;
  int states_on_disk = 0;
  uint64_t state_bytes_on_disk = 0;

  uint64_t resident_bytes = 0;  ///< memory of the process, now
  uint64_t peak_resident_bytes = 0;
};

}  // namespace redlite::session
