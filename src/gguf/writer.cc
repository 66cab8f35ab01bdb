#include "gguf/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/output.h"

namespace redlite::gguf {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kBufferBytes = size_t{1} << 20;

/// Appends little-endian values to a header.
class HeaderBuilder {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T)); }
  void put(bool value) { put(static_cast<uint8_t>(value)); }
  void put(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(const std::shared_ptr<const Array>& array) {
    put(static_cast<uint32_t>(array->type()));
    put(static_cast<uint64_t>(array->size()));
    std::visit(
        [this](const auto& values) {
          for (const auto& v : values) put(v);
        },
        array->values);
  }
  void put_typed(const Value& value) {
    put(static_cast<uint32_t>(type_of(value)));
    std::visit([this](const auto& v) { put(v); }, value);
  }

  void put_raw(std::string_view bytes) { bytes_.append(bytes); }
  void pad_to(uint64_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

struct Writer::Impl {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    quant::Type type;
    uint64_t bytes;
  };

  std::string path;
  std::optional<TemporaryName> temporary;
  uint64_t alignment;
  int fd = -1;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;
  std::set<std::string> keys;
  std::set<std::string> tensor_names;

  bool in_data = false;
  uint64_t total = 0;
  size_t current = 0;    ///< tensor being written
  uint64_t written = 0;  ///< bytes of it
  std::vector<std::byte> buffer;

  uint64_t padded(uint64_t bytes) const { return (bytes + alignment - 1) / alignment * alignment; }

  void flush() {
    put_out(buffer);
    buffer.clear();
  }

  void append(std::span<const std::byte> bytes) {
    if (buffer.size() + bytes.size() > kBufferBytes) flush();
    if (bytes.size() >= kBufferBytes) {
      put_out(bytes);
    } else {
      buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    }
  }

  /// Straight to the file.
  void put_out(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("{}: writing failed: {}", path, std::strerror(errno));
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  std::string header() const {
    HeaderBuilder out;
    out.put_raw("GGUF");
    out.put(kVersion);
    out.put(static_cast<uint64_t>(tensors.size()));
    out.put(static_cast<uint64_t>(metadata.size()));
    for (const auto& [key, value] : metadata) {
      out.put(key);
      out.put_typed(value);
    }
    uint64_t offset = 0;
    for (const Tensor& t : tensors) {
      out.put(t.name);
      out.put(static_cast<uint32_t>(t.shape.size()));
      for (const uint64_t length : t.shape) out.put(length);
      out.put(static_cast<uint32_t>(t.type));
      out.put(offset);
      offset += padded(t.bytes);
    }
    out.pad_to(alignment);
    return out.take();
  }

  void check_room() const {
    std::error_code ignored;
    const auto folder = std::filesystem::absolute(path, ignored).parent_path();
    const auto space = std::filesystem::space(folder, ignored);
    if (!ignored && space.available < total) {
      fail("{}: needs {} bytes, but only {} are free there", path, total, space.available);
    }
  }

  /// After a tensor's last byte: zeros up to the next one's start. Empty tensors do not exist.
  void finish_tensor() {
    const std::vector<std::byte> zeros(padded(written) - written);
    append(zeros);
    ++current;
    written = 0;
  }
};

Writer::Writer(std::string path, uint32_t alignment) : impl_(std::make_unique<Impl>()) {
  RL_CHECK(alignment >= 8 && std::has_single_bit(alignment), "alignment {}", alignment);
  Impl& w = *impl_;
  w.path = std::move(path);
  w.alignment = alignment;
  w.temporary.emplace(w.path);
  w.fd = ::open(w.temporary->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (w.fd < 0) fail("{}: cannot create: {}", w.temporary->text(), std::strerror(errno));
  if (alignment != 32) w.metadata.emplace_back("general.alignment", alignment);
}

Writer::~Writer() {
  if (impl_->fd < 0) return;
  ::close(impl_->fd);
}

void Writer::add(std::string key, Value value) {
  RL_CHECK(!impl_->in_data, "metadata after begin_data()");
  RL_CHECK(!key.empty() && key.size() <= 65535 && key != "general.alignment", "key {}", key);
  RL_CHECK(impl_->keys.insert(key).second, "key {} twice", key);
  impl_->metadata.emplace_back(std::move(key), std::move(value));
}

void Writer::add_tensor(std::string name, std::vector<uint64_t> shape, quant::Type type) {
  RL_CHECK(!impl_->in_data, "tensor after begin_data()");
  RL_CHECK(!name.empty() && name.size() <= 64 && !shape.empty() && shape.size() <= 4, "tensor {}", name);
  RL_CHECK(impl_->tensor_names.insert(name).second, "tensor {} twice", name);
  RL_CHECK(shape[0] % quant::info(type).block_values == 0, "tensor {}: rows of {} values in {}", name,
           shape[0], quant::name(type));
  uint64_t rows = 1;
  for (size_t d = 1; d < shape.size(); ++d) rows *= shape[d];
  const uint64_t bytes = quant::row_bytes(type, shape[0]) * rows;
  RL_CHECK(bytes > 0, "tensor {} is empty", name);
  impl_->tensors.push_back({std::move(name), std::move(shape), type, bytes});
}

void Writer::begin_data() {
  RL_CHECK(!impl_->in_data, "begin_data() twice");
  impl_->in_data = true;
  const std::string header = impl_->header();
  impl_->total = header.size();
  for (const Impl::Tensor& t : impl_->tensors) impl_->total += impl_->padded(t.bytes);
  impl_->check_room();
  impl_->append(std::as_bytes(std::span(header)));
}

void Writer::write(std::span<const std::byte> bytes) {
  Impl& w = *impl_;
  RL_CHECK(w.in_data, "write() before begin_data()");
  while (!bytes.empty()) {
    RL_CHECK(w.current < w.tensors.size(), "{} bytes more than declared", bytes.size());
    const uint64_t left = w.tensors[w.current].bytes - w.written;
    const auto part = bytes.first(std::min<uint64_t>(left, bytes.size()));
    w.append(part);
    w.written += part.size();
    bytes = bytes.subspan(part.size());
    if (w.written == w.tensors[w.current].bytes) w.finish_tensor();
  }
}

uint64_t Writer::total_bytes() const {
  RL_CHECK(impl_->in_data, "total_bytes() before begin_data()");
  return impl_->total;
}

void Writer::finish() {
  Impl& w = *impl_;
  RL_CHECK(w.in_data && w.current == w.tensors.size(), "finish() with {} of {} tensors written", w.current,
           w.tensors.size());
  w.flush();
  if (::close(std::exchange(w.fd, -1)) != 0) fail("{}: writing failed: {}", w.path, std::strerror(errno));
  w.temporary->rename();
}

}  // namespace redlite::gguf
