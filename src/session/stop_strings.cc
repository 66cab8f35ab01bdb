#include "session/stop_strings.h"

#include <algorithm>
#include <utility>

namespace redlite::session {

std::string StopStrings::push(std::string_view more) {
  held_ += more;
  // The one that begins first, and of those that begin together the first asked for.
  size_t at = std::string::npos;
  for (const std::string& stop : strings_) {
    const size_t begin = held_.find(stop);
    if (begin < at) {
      at = begin;
      found_ = &stop;
    }
  }
  if (found_ != nullptr) {
    held_.resize(at);
    return std::exchange(held_, {});
  }
  size_t hold = 0;
  for (const std::string& stop : strings_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) hold = n;
    }
  }
  std::string sure = held_.substr(0, held_.size() - hold);
  held_.erase(0, sure.size());
  return sure;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace redlite::session
