#include "gguf/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place as little-endian");

// Limits of the specification (ggml/docs/gguf.md), and one of ours: no published file nests arrays at all.
constexpr uint64_t kMaxKeyLength = 65535;
constexpr uint64_t kMaxTensorName = 64;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kDefaultAlignment = 32;

// The fewest bytes a list's element can take; a count is checked against them before anything is reserved.
constexpr uint64_t kMinStringBytes = 8;                      // length
constexpr uint64_t kMinArrayBytes = 4 + 8;                   // element type, count
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;        // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, name, dims, one dim, type, offset

/// Takes little-endian values off the front of a file, never past its end.
class Cursor {
 public:
  Cursor(std::string_view path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }
  std::string_view path() const { return path_; }

  /// `what` names what is being read, for the message when the file ends.
  std::span<const std::byte> take(uint64_t n, std::string_view what) {
    if (n > left()) {
      fail("{}: the file ends inside {} at offset {}: {} bytes needed, {} left; it is truncated or damaged",
           path_, what, offset_, n, left());
    }
    const auto taken = bytes_.subspan(offset_, n);
    offset_ += n;
    return taken;
  }

  template <typename T>
  T take(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view take_string(std::string_view what) {
    const auto length = take<uint64_t>(what);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// A count of elements that take at least `least` bytes each.
  uint64_t take_count(std::string_view what, uint64_t least) {
    const uint64_t at = offset_;
    const auto count = take<uint64_t>(what);
    if (count > left() / least) {
      fail("{}: {} at offset {} claims {} elements, but only {} bytes follow; it is truncated or damaged",
           path_, what, at, count, left());
    }
    return count;
  }

 private:
  std::string_view path_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

/// Reads metadata values of the key it was made for.
class ValueReader {
 public:
  ValueReader(Cursor& cursor, std::string_view key) : cursor_(cursor), what_("the value of " + quote(key)) {}

  Value read(ValueType type) {
    switch (type) {
      case ValueType::U8:
        return scalar<uint8_t>();
      case ValueType::I8:
        return scalar<int8_t>();
      case ValueType::U16:
        return scalar<uint16_t>();
      case ValueType::I16:
        return scalar<int16_t>();
      case ValueType::U32:
        return scalar<uint32_t>();
      case ValueType::I32:
        return scalar<int32_t>();
      case ValueType::F32:
        return scalar<float>();
      case ValueType::Bool:
        return boolean();
      case ValueType::String:
        return std::string(cursor_.take_string(what_));
      case ValueType::Array:
        return array(1);
      case ValueType::U64:
        return scalar<uint64_t>();
      case ValueType::I64:
        return scalar<int64_t>();
      case ValueType::F64:
        return scalar<double>();
    }
    RL_CHECK(false, "value type {}", static_cast<uint32_t>(type));
  }

  ValueType read_type() {
    const uint64_t at = cursor_.offset();
    const auto id = cursor_.take<uint32_t>(what_);
    if (id > static_cast<uint32_t>(ValueType::F64)) {
      fail(
          "{}: {} at offset {} has type {}, but GGUF knows 0 to 12 only; the file is damaged or newer than "
          "this "
          "program",
          cursor_.path(), what_, at, id);
    }
    return static_cast<ValueType>(id);
  }

 private:
  template <typename T>
  T scalar() {
    return cursor_.take<T>(what_);
  }

  bool boolean() {
    const uint64_t at = cursor_.offset();
    const auto byte = cursor_.take<uint8_t>(what_);
    if (byte > 1) {
      fail("{}: {} at offset {} holds the boolean {}, which must be 0 or 1; the file is damaged",
           cursor_.path(), what_, at, byte);
    }
    return byte == 1;
  }

  template <typename T>
  std::vector<T> numbers() {
    const uint64_t count = cursor_.take_count(what_, sizeof(T));
    std::vector<T> values(count);
    if (count != 0)
      std::memcpy(values.data(), cursor_.take(count * sizeof(T), what_).data(), count * sizeof(T));
    return values;
  }

  /// count elements of at least `least` bytes, each read by `read_one`.
  template <typename T, typename ReadOne>
  std::vector<T> elements(uint64_t least, ReadOne read_one) {
    const uint64_t count = cursor_.take_count(what_, least);
    std::vector<T> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(read_one());
    return values;
  }

  std::shared_ptr<const Array> array(int depth) {
    if (depth > kMaxArrayDepth) {
      fail("{}: {} at offset {} nests arrays deeper than {}; the file is damaged", cursor_.path(), what_,
           cursor_.offset(), kMaxArrayDepth);
    }
    auto result = std::make_shared<Array>();
    switch (read_type()) {
      case ValueType::U8:
        result->values = numbers<uint8_t>();
        break;
      case ValueType::I8:
        result->values = numbers<int8_t>();
        break;
      case ValueType::U16:
        result->values = numbers<uint16_t>();
        break;
      case ValueType::I16:
        result->values = numbers<int16_t>();
        break;
      case ValueType::U32:
        result->values = numbers<uint32_t>();
        break;
      case ValueType::I32:
        result->values = numbers<int32_t>();
        break;
      case ValueType::F32:
        result->values = numbers<float>();
        break;
      case ValueType::Bool:
        result->values = elements<bool>(1, [&] { return boolean(); });
        break;
      case ValueType::String:
        result->values =
            elements<std::string>(kMinStringBytes, [&] { return std::string(cursor_.take_string(what_)); });
        break;
      case ValueType::Array:
        result->values =
            elements<std::shared_ptr<const Array>>(kMinArrayBytes, [&] { return array(depth + 1); });
        break;
      case ValueType::U64:
        result->values = numbers<uint64_t>();
        break;
      case ValueType::I64:
        result->values = numbers<int64_t>();
        break;
      case ValueType::F64:
        result->values = numbers<double>();
        break;
    }
    return result;
  }

  Cursor& cursor_;
  std::string what_;
};

/// Refuses what is not GGUF, naming the usual other things that end up under the name.
void check_magic(std::string_view path, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) return;
  if (text.empty()) fail("{}: the file is empty", path);
  if (text.size() < 4 && std::string_view("GGUF").starts_with(text)) {
    fail("{}: the file ends after {} bytes; it is truncated", path, text.size());
  }
  if (text.starts_with("version https://git-lfs")) {
    fail("{}: this is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`", path);
  }
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html")) {
    fail("{}: this is an HTML page, not a GGUF file; the download went wrong", path);
  }
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (text.starts_with(old)) fail("{}: this is a GGML file from before GGUF; convert it to GGUF", path);
  }
  fail("{}: not a GGUF file: it begins with {} instead of 'GGUF'", path, quote(text.substr(0, 4)));
}

uint32_t read_version(Cursor& cursor) {
  cursor.take(4, "the magic");
  const auto version = cursor.take<uint32_t>("the format version");
  if (version == 2 || version == 3) return version;
  // No version will ever need the upper half; a file from a big-endian machine has its 3 there.
  if ((version & 0xffffu) == 0 && version != 0) {
    fail(
        "{}: this is a big-endian GGUF file; only little-endian ones are supported (gguf_convert_endian.py "
        "of "
        "llama.cpp converts it)",
        cursor.path());
  }
  fail("{}: GGUF version {} at offset 4 is not supported, only versions 2 and 3 are{}", cursor.path(),
       version, version == 1 ? "; convert the model anew" : "");
}

void read_metadata(Cursor& cursor, uint64_t count, Header& header) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = cursor.offset();
    const std::string_view key = cursor.take_string(fmt::format("metadata key {}", i));
    if (key.empty() || key.size() > kMaxKeyLength) {
      fail("{}: metadata key {} at offset {} has {} bytes, outside 1 to {}; the file is damaged",
           cursor.path(), i, at, key.size(), kMaxKeyLength);
    }
    ValueReader reader(cursor, key);
    const ValueType type = reader.read_type();
    if (!header.metadata.emplace(key, reader.read(type)).second) {
      fail("{}: metadata key {} at offset {} is there twice", cursor.path(), quote(key), at);
    }
  }
}

uint64_t read_alignment(std::string_view path, const Header& header) {
  const auto found = header.metadata.find("general.alignment");
  if (found == header.metadata.end()) return kDefaultAlignment;
  const auto* alignment = std::get_if<uint32_t>(&found->second);
  if (alignment == nullptr) {
    fail("{}: general.alignment must be a u32, not {}", path, name(type_of(found->second)));
  }
  // Less than 8 is against the specification and would leave F32 tensors misaligned in the mapping.
  if (*alignment < 8 || !std::has_single_bit(*alignment)) {
    fail("{}: general.alignment is {}, but must be a power of two of at least 8", path, *alignment);
  }
  return *alignment;
}

/// Reads one entry of the tensor list; its offset is still relative to the data section.
TensorInfo read_tensor(Cursor& cursor, uint64_t index) {
  const uint64_t at = cursor.offset();
  const std::string numbered = fmt::format("tensor {}'s entry", index);
  TensorInfo tensor{};
  tensor.name = cursor.take_string(numbered);
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorName) {
    fail("{}: {} at offset {} has a name of {} bytes, outside 1 to {}; the file is damaged", cursor.path(),
         numbered, at, tensor.name.size(), kMaxTensorName);
  }
  const std::string what = "tensor " + quote(tensor.name);
  const auto n_dims = cursor.take<uint32_t>(what);
  if (n_dims < 1 || n_dims > kMaxDims) {
    fail("{}: {} at offset {} has {} dimensions, outside 1 to {}; the file is damaged", cursor.path(), what,
         at, n_dims, kMaxDims);
  }
  uint64_t values = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    const auto length = cursor.take<uint64_t>(what);
    if (length == 0) fail("{}: {} at offset {} has a dimension of length 0", cursor.path(), what, at);
    if (__builtin_mul_overflow(values, length, &values) || values > std::numeric_limits<int64_t>::max()) {
      fail("{}: {} at offset {} has more than 2^63 values; the file is damaged", cursor.path(), what, at);
    }
    tensor.shape.push_back(length);
  }
  const auto type_id = cursor.take<uint32_t>(what);
  const quant::TypeInfo* type = quant::find_type(type_id);
  if (type == nullptr) {
    fail("{}: {} at offset {} has type {}, which is not supported; supported are {}", cursor.path(), what, at,
         quant::describe_type(type_id), quant::supported_types());
  }
  tensor.type = type->type;
  if (tensor.shape[0] % type->block_values != 0) {
    fail("{}: {} at offset {} has rows of {} values, not a multiple of the {} that a block of {} holds",
         cursor.path(), what, at, tensor.shape[0], type->block_values, type->name);
  }
  if (__builtin_mul_overflow(values / type->block_values, uint64_t{type->block_bytes}, &tensor.bytes)) {
    fail("{}: {} at offset {} has more than 2^64 bytes; the file is damaged", cursor.path(), what, at);
  }
  tensor.offset = cursor.take<uint64_t>(what);
  return tensor;
}

/// Turns offsets into offsets from the file's start, and checks where each tensor lies.
void place_tensors(std::string_view path, uint64_t header_end, uint64_t file_bytes, uint64_t alignment,
                   std::vector<TensorInfo>& tensors) {
  const uint64_t data_start = (header_end + alignment - 1) / alignment * alignment;
  for (TensorInfo& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      fail("{}: tensor {} has offset {}, not a multiple of the file's alignment of {}", path,
           quote(tensor.name), tensor.offset, alignment);
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, data_start, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.bytes, &end) || end > file_bytes) {
      fail(
          "{}: tensor {} needs {} bytes from offset {}, but the file has only {} bytes; it is truncated or "
          "damaged",
          path, quote(tensor.name), tensor.bytes, tensor.offset, file_bytes);
    }
  }
  std::vector<const TensorInfo*> by_offset(tensors.size());
  std::ranges::transform(tensors, by_offset.begin(), [](const TensorInfo& t) { return &t; });
  std::ranges::sort(by_offset, {}, &TensorInfo::offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = *by_offset[i - 1];
    const TensorInfo& tensor = *by_offset[i];
    if (before.offset + before.bytes > tensor.offset) {
      fail("{}: tensors {} and {} overlap at offset {}; the file is damaged", path, quote(before.name),
           quote(tensor.name), tensor.offset);
    }
  }
}

}  // namespace

Header parse_header(std::string_view path, std::span<const std::byte> bytes) {
  check_magic(path, bytes);
  Cursor cursor(path, bytes);
  Header header;
  header.version = read_version(cursor);
  const uint64_t n_tensors = cursor.take_count("the tensor count", kMinTensorBytes);
  const uint64_t n_metadata = cursor.take_count("the metadata count", kMinMetadataBytes);
  read_metadata(cursor, n_metadata, header);
  const uint64_t alignment = read_alignment(path, header);
  if (n_tensors > cursor.left() / kMinTensorBytes) {
    fail(
        "{}: the tensor list at offset {} claims {} tensors, but only {} bytes follow; it is truncated or "
        "damaged",
        path, cursor.offset(), n_tensors, cursor.left());
  }
  header.tensors.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) header.tensors.push_back(read_tensor(cursor, i));
  place_tensors(path, cursor.offset(), bytes.size(), alignment, header.tensors);
  return header;
}

}  // namespace redlite::gguf
