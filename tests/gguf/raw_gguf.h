#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "gguf/gguf.h"

namespace redlite::gguf {

/// Bytes of a GGUF file put down one by one, so that tests can lie in every field. Knows nothing of the
/// Writer.
class RawGguf {
 public:
  /// Magic, version and the two counts.
  RawGguf(uint32_t version, uint64_t n_tensors, uint64_t n_metadata) {
    text("GGUF").num(version).num(n_tensors).num(n_metadata);
  }
  RawGguf() = default;

  template <typename T>
  requires std::is_arithmetic_v<T> RawGguf& num(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    data_.append(bytes, sizeof(T));
    return *this;
  }
  RawGguf& text(std::string_view bytes) {
    data_.append(bytes);
    return *this;
  }
  RawGguf& string(std::string_view value) { return num(uint64_t{value.size()}).text(value); }
  /// A metadata key and the type of the value that follows.
  RawGguf& key(std::string_view key, ValueType type) { return string(key).num(static_cast<uint32_t>(type)); }
  RawGguf& tensor(std::string_view name, std::initializer_list<uint64_t> shape, uint32_t type,
                  uint64_t offset) {
    string(name).num(static_cast<uint32_t>(shape.size()));
    for (const uint64_t length : shape) num(length);
    return num(type).num(offset);
  }
  RawGguf& pad(size_t alignment) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  RawGguf& zeros(size_t n) {
    data_.append(n, '\0');
    return *this;
  }

  size_t size() const { return data_.size(); }
  std::string& data() { return data_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(data_)); }
  File parse() const { return File::from_bytes("m.gguf", bytes()); }

 private:
  std::string data_;
};

}  // namespace redlite::gguf
