#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace redlite::constrain {

inline constexpr uint32_t kLastCodePoint = 0x10ffff;
inline constexpr uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

/// Code points as ranges, ascending and apart from each other.
class CodePoints {
 public:
  using Range = std::pair<uint32_t, uint32_t>;

  static CodePoints all();  ///< but surrogates
  void add(uint32_t low, uint32_t high);
  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints intersect(const CodePoints& other) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace redlite::constrain
