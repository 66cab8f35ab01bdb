#include "constrain/code_points.h"

#include <algorithm>

namespace redlite::constrain {

CodePoints CodePoints::all() {
  CodePoints out;
  out.ranges_ = {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCodePoint}};
  return out;
}

void CodePoints::add(uint32_t low, uint32_t high) {
  // The ranges that touch it become one with it.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                                      [](const Range& r, uint32_t value) { return r.second + 1 < value; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= high + 1; ++end) {
    low = std::min(low, end->first);
    high = std::max(high, end->second);
  }
  ranges_.insert(ranges_.erase(begin, end), {low, high});
}

void CodePoints::add(const CodePoints& other) {
  for (const Range& r : other.ranges_) add(r.first, r.second);
}

CodePoints CodePoints::complement() const {
  CodePoints out;
  uint32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kLastCodePoint) out.ranges_.emplace_back(next, kLastCodePoint);
  return out.intersect(all());
}

CodePoints CodePoints::intersect(const CodePoints& other) const {
  CodePoints out;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const uint32_t low = std::max(ranges_[i].first, other.ranges_[j].first);
    const uint32_t high = std::min(ranges_[i].second, other.ranges_[j].second);
    if (low <= high) out.ranges_.emplace_back(low, high);
    if (ranges_[i].second < other.ranges_[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

}  // namespace redlite::constrain
