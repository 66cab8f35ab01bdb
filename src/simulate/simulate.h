#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "experts/cache.h"
#include "experts/layout.h"
#include "trace/trace.h"

namespace redlite::simulate {

/// Which expert makes room.
enum class Policy : uint8_t { Lru, SegmentedLru, Frequency, Clairvoyant };
/// Which slots there are: of each size of expert (what the engine does), or all as large as the largest.
enum class Slots : uint8_t { BySize, Uniform };
/// Which experts are loaded ahead for the next layer: none; what the next layer's router makes of this
/// layer's input (what the engine does); those of the token before; those that will be needed.
enum class Predictor : uint8_t { None, Router, PreviousToken, Perfect };

std::string_view name_of(Policy policy);
std::string_view name_of(Slots slots);
std::string_view name_of(Predictor predictor);
inline constexpr Policy kPolicies[] = {Policy::Lru, Policy::SegmentedLru, Policy::Frequency,
                                       Policy::Clairvoyant};
inline constexpr Slots kSlots[] = {Slots::BySize, Slots::Uniform};
inline constexpr Predictor kPredictors[] = {Predictor::None, Predictor::Router, Predictor::PreviousToken,
                                            Predictor::Perfect};

struct Setup {
  uint64_t cache_bytes = 0;
  Policy policy = Policy::Lru;
  Slots slots = Slots::BySize;
  Predictor predictor = Predictor::None;
  double half_life = 32;  ///< tokens; Policy::Frequency only
};

/// Bytes a second.
struct Speeds {
  double memory = 0;
  double disk = 0;
};

struct Result {
  experts::CacheStats stats;  ///< of the whole trace, counted as the engine counts; times are predictions

  // Means over the tokens counted.
  size_t tokens = 0;
  double misses = 0;  ///< experts that the computation waited for: missing, or not there yet
  double loads = 0;   ///< experts read, ahead or not
  double bytes_read = 0;
  double seconds = 0;  ///< predicted time of a token
};

/// The slots that the engine would have for this model.
experts::SizeClasses size_classes(const trace::Trace& trace, Slots slots);

/// What the engine's cache would have done with a trace. Uses the engine's own ExpertPool and PrefetchPlan;
/// the order of acquires is that of cpu/experts.cc.
///
/// Time is predicted in a simple machine: memory and disk each give their bytes a second and nothing else
/// takes time; a layer's dense weights come first, then the experts that are there, then the others as they
/// arrive; the disk works off its queue in order while the memory is read, and loads ahead are queued when
/// those that the layer waits for have arrived. So the time is a bound for decoding; of prefill it says
/// nothing.
///
/// The tokens counted are those decoded (chunks of one token) but for the first quarter, which warms the
/// cache up; in a trace without such, all. Throws Error when the cache is too small for one token.
Result simulate(const trace::Trace& trace, const Setup& setup, const Speeds& speeds);

}  // namespace redlite::simulate
