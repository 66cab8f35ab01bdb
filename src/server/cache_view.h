#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "session/engine.h"

namespace redlite::server {

/// The expert cache as a film: a frame says where each expert is and what happened to it since the frame
/// before. All who watch see the same frames, so that many cost no more than one. Thread-safe.
class CacheView {
 public:
  static constexpr std::chrono::milliseconds kPeriod{200};  ///< no new frame sooner

  explicit CacheView(const session::Engine& engine) : engine_(engine) {}

  struct Frame {
    uint64_t number = 0;  ///< from 1
    std::string text;     ///< one line of JSON
  };

  /// The present frame. Its JSON:
  ///   frame           its number
  ///   seconds         since the frame before
  ///   layers, experts of the model
  ///   rows            a string for each layer, with a letter for each expert: '.' not in memory, 'r'
  ///   resident,
  ///                   'h' selected and there, 'm' selected and read meanwhile, 'p' read ahead; none where
  ///                   the runner has no such cache
  ///   hits, misses, late, prefetched, bytes_read, stall_seconds, answer_tokens: counts since the start
  ///   recent          the same counts since the frame before
  ///   stages          seconds since the frame before, by part of the pass
  ///   hit_rate        since the frame before; null if nothing was selected
  ///   prefill_rate, decode_rate (tokens a second), active, queued, resident_bytes
  Frame frame();

 private:
  std::string write(const session::Statistics& statistics, const session::ExpertMap& map,
                    double seconds) const;

  const session::Engine& engine_;
  std::mutex mutex_;
  Frame frame_;
  std::chrono::steady_clock::time_point taken_;
  session::Statistics statistics_;  ///< as of the frame
  session::ExpertMap map_;
};

}  // namespace redlite::server
