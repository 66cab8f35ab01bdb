#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace redlite {

/// What a progress bar counts; Parts: whatever is done of the whole, without a rate.
enum class ProgressUnit : uint8_t { Bytes, Tokens, Parts };

/// A progress bar on stderr, with rate and time left. Silent when stderr is not a terminal and for work
/// that takes less than a second; the bar disappears when the object does. Not thread-safe.
class Progress {
 public:
  Progress(std::string label, uint64_t total, ProgressUnit unit = ProgressUnit::Bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `amount` more is done. Costs little: draws at most ten times a second.
  void advance(uint64_t amount) { reach(done_ + static_cast<double>(amount)); }
  void set_label(std::string label) { label_ = std::move(label); }
  /// `done` of the total is done.
  void reach(double done);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  double total_;
  double done_ = 0;
  ProgressUnit unit_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_ = start_ + std::chrono::seconds(1);
};

namespace detail {
/// The bar as one line without control characters; at most 79 columns for labels of up to 20.
std::string progress_line(const std::string& label, double done, double total, double seconds,
                          ProgressUnit unit = ProgressUnit::Bytes);
}  // namespace detail

}  // namespace redlite
