#pragma once

#include <string_view>
#include <vector>

namespace redlite::synth {

/// The parts of a list such as "a,b,c"; none of an empty text.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return parts;
}

}  // namespace redlite::synth
