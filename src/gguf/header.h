#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::gguf {

/// What one GGUF file says about itself, checked against its length. Tensors carry shard 0 and offsets from
/// the file's start; they lie inside the file, aligned, and do not overlap.
struct Header {
  uint32_t version = 0;
  std::map<std::string, Value, std::less<>> metadata;
  std::vector<TensorInfo> tensors;
};

/// Reads the header of a file of which `bytes` is the whole. Throws Error beginning with `path`.
Header parse_header(std::string_view path, std::span<const std::byte> bytes);

}  // namespace redlite::gguf
