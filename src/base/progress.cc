#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace redlite {
namespace detail {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::ceil(std::min(seconds, 359'999.0)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

}  // namespace

std::string progress_line(const std::string& label, uint64_t done, uint64_t total, double seconds) {
  constexpr int kWidth = 24;
  const double fraction =
      total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double rate = static_cast<double>(done) / std::max(seconds, 1e-9);
  const int filled = static_cast<int>(fraction * kWidth);
  const std::string left =
      done == 0 ? "" : ", " + duration((1 - fraction) / std::max(fraction, 1e-12) * seconds) + " left";
  return fmt::format("{} [{:#<{}}{:.<{}}] {:3.0f} % {:6.1f} MB/s{}", label, "", filled, "", kWidth - filled,
                     std::floor(fraction * 100), rate / 1e6, left);
}

}  // namespace detail

Progress::Progress(std::string label, uint64_t total_bytes)
    : label_(std::move(label)), total_(total_bytes), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

void Progress::advance(uint64_t bytes) {
  done_ += bytes;
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r{}\x1b[K", detail::progress_line(label_, done_, total_, seconds));
  std::fflush(stderr);
}

}  // namespace redlite
