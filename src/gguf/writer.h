#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::gguf {

/// Writes a GGUF v3 file: metadata and tensor list first, then the data tensor by tensor in that order, so
/// that a file larger than memory can be produced. The file appears under its name only when finish()
/// succeeds; until then, and after an Error, only a temporary beside it exists, which the destructor removes.
///
/// What the system refuses (no space, no permission) throws Error; declarations that the format forbids are
/// the caller's bugs and abort.
class Writer {
 public:
  /// Creates the temporary. The key general.alignment is the writer's own: it is added when not 32.
  explicit Writer(std::string path, uint32_t alignment = 32);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void add(std::string key, Value value);
  /// Declares the next tensor; shape in GGUF order (row length first).
  void add_tensor(std::string name, std::vector<uint64_t> shape, quant::Type type);

  /// Ends the declarations and writes the header; throws Error when the disk has too little room for the
  /// rest.
  void begin_data();
  /// Appends bytes of the current tensor; tensors follow in the order declared and must come out exact.
  void write(std::span<const std::byte> bytes);
  /// Total bytes the finished file will have (known after begin_data()).
  uint64_t total_bytes() const;
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Builds an array value from a vector of any metadata type.
template <typename T>
Value make_array(std::vector<T> values) {
  return std::make_shared<const Array>(Array{std::move(values)});
}

}  // namespace redlite::gguf
