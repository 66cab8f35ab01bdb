#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::model {

/// Checked access to an architecture's metadata: `count("block_count")` reads "qwen3next.block_count". Every
/// failure is an Error that names file and key.
class Keys {
 public:
  /// Largest value count() takes: two of them multiply without overflow in 64 bits.
  static constexpr int kMaxCount = 1 << 24;

  Keys(const gguf::File& file, std::string_view architecture) : file_(file), prefix_(architecture) {}

  const gguf::File& file() const { return file_; }
  std::string name(std::string_view key) const { return prefix_ + "." + std::string(key); }

  /// A size in [1, kMaxCount]. An array (one value for each block) is taken if all its values are equal.
  int count(std::string_view key) const;
  std::optional<int> find_count(std::string_view key) const;
  /// A number; Error unless it is finite.
  double number(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  /// Integers or booleans.
  std::optional<std::vector<uint64_t>> find_integers(std::string_view key) const;

  /// Throws "file: key: reason".
  [[noreturn]] void reject(std::string_view key, std::string_view reason) const;

 private:
  const gguf::File& file_;
  std::string prefix_;
};

}  // namespace redlite::model
