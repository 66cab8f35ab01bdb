#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/output.h"

namespace redlite::cli {

/// Writes a float32 matrix as a NumPy .npy file (format 1.0), some rows at a time. The file appears under its
/// name only when finish() succeeds; until then only a temporary beside it exists. Errors name the file.
class NpyWriter {
 public:
  NpyWriter(std::string path, uint64_t rows, uint64_t cols);

  void write(std::span<const float> values);
  void finish();

 private:
  void write_bytes(std::span<const std::byte> bytes);

  std::string path_;
  TemporaryName temporary_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t missing_;  ///< values still to come
};

}  // namespace redlite::cli
