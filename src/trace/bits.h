#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace redlite::trace {

/// Bits needed to hold numbers below n, at least 1.
constexpr int bits_below(int n) {
  int bits = 1;
  while (bits < 16 && (1 << bits) < n) ++bits;
  return bits;
}

/// Appends numbers of up to 16 bits to bytes, lowest bit first.
class BitWriter {
 public:
  explicit BitWriter(std::vector<std::byte>& out) : out_(out) {}
  void put(uint32_t value, int bits) {
    pending_ |= static_cast<uint64_t>(value) << n_pending_;
    for (n_pending_ += bits; n_pending_ >= 8; n_pending_ -= 8, pending_ >>= 8)
      out_.push_back(static_cast<std::byte>(pending_ & 0xff));
  }
  /// Fills the last byte with zeros.
  void finish() {
    if (n_pending_ > 0) put(0, 8 - n_pending_);
  }

 private:
  std::vector<std::byte>& out_;
  uint64_t pending_ = 0;
  int n_pending_ = 0;
};

/// Reads them back. The caller has checked that there are enough bytes.
class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint32_t get(int bits) {
    for (; n_pending_ < bits; n_pending_ += 8) pending_ |= static_cast<uint64_t>(bytes_[at_++]) << n_pending_;
    const auto value = static_cast<uint32_t>(pending_ & ((uint64_t{1} << bits) - 1));
    pending_ >>= bits;
    n_pending_ -= bits;
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t pending_ = 0;
  int n_pending_ = 0;
};

}  // namespace redlite::trace
