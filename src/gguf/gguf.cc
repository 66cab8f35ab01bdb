// Opening a GGUF model: one file, or a split set whose parts are checked against each other.

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "gguf/gguf.h"
#include "gguf/header.h"

namespace redlite::gguf {
namespace {

/// What a file says about the split set it belongs to.
struct SplitInfo {
  uint64_t index = 0;
  uint64_t count = 1;
};

SplitInfo read_split(std::string_view path, const Header& header) {
  const auto read = [&](std::string_view key) -> std::optional<uint64_t> {
    const auto found = header.metadata.find(key);
    if (found == header.metadata.end()) return std::nullopt;
    if (const auto* v = std::get_if<uint16_t>(&found->second)) return *v;
    fail("{}: {} must be a u16, not {}", path, key, name(type_of(found->second)));
  };
  const std::optional<uint64_t> count = read("split.count");
  if (!count || *count <= 1) return {};
  const std::optional<uint64_t> index = read("split.no");
  if (!index || *index >= *count) {
    fail("{}: split.count is {}, but split.no {}", path, *count,
         index ? fmt::format("is {}", *index) : std::string("is missing"));
  }
  return {*index, *count};
}

std::string split_suffix(uint64_t index, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

File::File(const std::string& path) : path_(path) {
  MappedFile named(path);
  Header header = parse_header(path, named.bytes());
  const SplitInfo split = read_split(path, header);
  if (split.count == 1) {
    add_shard(path, named.bytes(), std::move(header));
    shards_.push_back(std::move(named));
    return;
  }
  const std::string suffix = split_suffix(split.index, split.count);
  if (!path.ends_with(suffix)) {
    fail(
        "{}: this is part {} of {} of a split model, but its name does not end in {}; the other parts "
        "are found by their names, so give them back",
        path, split.index + 1, split.count, suffix);
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (uint64_t i = 0; i < split.count; ++i) {
    const std::string part = stem + split_suffix(i, split.count);
    MappedFile file(part);
    Header part_header = parse_header(part, file.bytes());
    const SplitInfo found = read_split(part, part_header);
    if (found.index != i || found.count != split.count) {
      fail("{}: this should be part {} of {} of the split model, but says it is part {} of {}", part, i + 1,
           split.count, found.index + 1, found.count);
    }
    add_shard(part, file.bytes(), std::move(part_header));
    shards_.push_back(std::move(file));
  }
  if (const std::optional<uint64_t> expected = get_uint("split.tensors.count");
      expected && *expected != tensors_.size()) {
    fail("{}: the {} parts of this split model hold {} tensors, but split.tensors.count says {}", path,
         split.count, tensors_.size(), *expected);
  }
}

File File::from_bytes(std::string name, std::span<const std::byte> bytes) {
  Header header = parse_header(name, bytes);
  if (read_split(name, header).count != 1)
    fail("{}: a part of a split model cannot be read from memory", name);
  File file;
  file.path_ = std::move(name);
  file.add_shard(file.path_, bytes, std::move(header));
  return file;
}

void File::add_shard(std::string_view shard_path, std::span<const std::byte> bytes, Header header) {
  const auto shard = static_cast<uint32_t>(contents_.size());
  if (shard == 0) {  // the other parts repeat what is needed to read them and no more
    version_ = header.version;
    metadata_ = std::move(header.metadata);
  }
  contents_.push_back(bytes);
  tensors_.reserve(tensors_.size() + header.tensors.size());
  for (TensorInfo& tensor : header.tensors) {
    if (!by_name_.emplace(tensor.name, tensors_.size()).second) {
      fail("{}: there are two tensors named {}", shard_path, quote(tensor.name));
    }
    tensor.shard = shard;
    tensors_.push_back(std::move(tensor));
  }
}

const TensorInfo* File::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> File::data(const TensorInfo& tensor) const {
  return contents_[tensor.shard].subspan(tensor.offset, tensor.bytes);
}

}  // namespace redlite::gguf
