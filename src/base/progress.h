#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace redlite {

/// A progress bar for work measured in bytes, on stderr. Silent when stderr is not a terminal and for work
/// that takes less than a second; the bar disappears when the object does. Not thread-safe.
class Progress {
 public:
  Progress(std::string label, uint64_t total_bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `bytes` more are done. Costs little: draws at most ten times a second.
  void advance(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_ = start_ + std::chrono::seconds(1);
};

namespace detail {
/// The bar as one line without control characters; at most 79 columns for labels of up to 20.
std::string progress_line(const std::string& label, uint64_t done, uint64_t total, double seconds);
}  // namespace detail

}  // namespace redlite
