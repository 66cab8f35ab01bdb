#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "quant/type.h"

namespace redlite::gguf {

/// Metadata value types with GGUF's ids.
enum class ValueType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};

struct Array;
struct Header;

/// A metadata value; the index of the alternative is the ValueType. Arrays may nest.
using Value = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                           std::shared_ptr<const Array>, uint64_t, int64_t, double>;

/// A metadata array: one vector of its element type; the index of the alternative is the ValueType.
struct Array {
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
               std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
               std::vector<std::string>, std::vector<std::shared_ptr<const Array>>, std::vector<uint64_t>,
               std::vector<int64_t>, std::vector<double>>
      values;

  ValueType type() const { return static_cast<ValueType>(values.index()); }
  size_t size() const {
    return std::visit([](const auto& v) { return v.size(); }, values);
  }
};

/// The type of a value.
inline ValueType type_of(const Value& value) {
  return static_cast<ValueType>(value.index());
}
/// "u8", "string", "array", ...: for messages.
std::string_view name(ValueType type);

/// Where a tensor lies. `shape` is in GGUF order: shape[0] is the length of a row (contiguous).
struct TensorInfo {
  std::string name;
  std::vector<uint64_t> shape;
  quant::Type type;
  uint32_t shard;   ///< index of the split file that holds the data
  uint64_t offset;  ///< bytes from that file's start
  uint64_t bytes;
};

/// An open GGUF model, one file or all of a split set (name any of `-00001-of-0000N.gguf`).
///
/// Everything the header claims is checked against the file's true length before use; what is wrong throws an
/// Error that names file, field and offset. Data is mapped, never copied: touching it reads from disk.
/// Source of the format: the GGUF specification (ggml/docs/gguf.md), versions 2 and 3.
class File {
 public:
  explicit File(const std::string& path);

  /// A file whose bytes are already in memory and outlive the object; `name` stands for the path in messages.
  /// It has no shards() and may not be part of a split set.
  static File from_bytes(std::string name, std::span<const std::byte> bytes);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<MappedFile>& shards() const { return shards_; }

  /// The tensor of this name, or nullptr.
  const TensorInfo* find(std::string_view name) const;
  /// The whole content of one file of the set.
  std::span<const std::byte> shard_bytes(uint32_t shard) const { return contents_[shard]; }
  /// The mapped bytes of a tensor.
  std::span<const std::byte> data(const TensorInfo& tensor) const;

  const Value* find_value(std::string_view key) const;
  /// Typed look-ups. Integers of any width convert if the value fits; a value of another kind throws Error.
  std::optional<uint64_t> get_uint(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  std::optional<std::vector<std::string>> get_strings(std::string_view key) const;
  std::optional<std::vector<uint64_t>> get_uints(std::string_view key) const;
  std::optional<std::vector<double>> get_floats(std::string_view key) const;
  std::optional<std::vector<bool>> get_bools(std::string_view key) const;

 private:
  File() = default;
  void add_shard(std::string_view shard_path, std::span<const std::byte> bytes, Header header);
  const Array* find_array(std::string_view key, std::string_view wanted) const;

  std::string path_;
  uint32_t version_ = 0;
  std::map<std::string, Value, std::less<>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::vector<MappedFile> shards_;
  std::vector<std::span<const std::byte>> contents_;  ///< of each shard, mapped or given
};

}  // namespace redlite::gguf
