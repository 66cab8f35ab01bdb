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

std::string progress_line(const std::string& label, double done, double total, double seconds,
                          ProgressUnit unit) {
  constexpr int kWidth = 24;
  const double fraction = total <= 0 ? 1 : std::min(1.0, done / total);
  const double rate = done / std::max(seconds, 1e-9);
  const std::string speed = unit == ProgressUnit::Bytes    ? fmt::format(" {:6.1f} MB/s", rate / 1e6)
                            : unit == ProgressUnit::Tokens ? fmt::format(" {:6.1f} tok/s", rate)
                                                           : "";
  const int filled = static_cast<int>(fraction * kWidth);
  const std::string left =
      done <= 0 ? "" : ", " + duration((1 - fraction) / std::max(fraction, 1e-12) * seconds) + " left";
  return fmt::format("{} [{:#<{}}{:.<{}}] {:3.0f} %{}{}", label, "", filled, "", kWidth - filled,
                     std::floor(fraction * 100), speed, left);
}

}  // namespace detail

Progress::Progress(std::string label, uint64_t total, ProgressUnit unit)
    : label_(std::move(label)),
      total_(static_cast<double>(total)),
      unit_(unit),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

void Progress::reach(double done) {
  done_ = done;
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r{}\x1b[K", detail::progress_line(label_, done_, total_, seconds, unit_));
  std::fflush(stderr);
}

}  // namespace redlite
