#include "model/binder.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/quote.h"
#include "quant/decode.h"

namespace redlite::model {

namespace {

// The block number in "blk.7.name", if it is such a name.
std::optional<int> block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int block = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), block);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.' || block < 0)
    return std::nullopt;
  return block;
}

}  // namespace

std::string block_tensor(int layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

const gguf::TensorInfo& Binder::take(const std::string& name, std::initializer_list<int64_t> shape) {
  const gguf::TensorInfo* tensor = file_.find(name);
  if (!tensor) fail("{}: tensor {} is missing", file_.path(), name);
  // Dimensions of 1 at the end do not count.
  std::vector<uint64_t> want, have = tensor->shape;
  for (const int64_t n : shape) {
    if (n < 1 || n > std::numeric_limits<int>::max())
      fail("{}: tensor {} would have a dimension of {}; the metadata is damaged", file_.path(), name, n);
    want.push_back(static_cast<uint64_t>(n));
  }
  const auto trimmed = [](std::vector<uint64_t> v) {
    while (v.size() > 1 && v.back() == 1) v.pop_back();
    return v;
  };
  if (trimmed(want) != trimmed(have))
    fail("{}: tensor {} has shape [{}], the metadata asks for [{}]", file_.path(), name,
         fmt::join(have, ", "), fmt::join(want, ", "));
  if (want[0] % quant::info(tensor->type).block_values != 0)
    fail("{}: tensor {}: rows of {} values cannot be stored as {}", file_.path(), name, want[0],
         quant::name(tensor->type));
  taken_.insert(name);
  return *tensor;
}

Matrix Binder::matrix(const std::string& name, int64_t rows, int64_t cols) {
  const gguf::TensorInfo& tensor = take(name, {cols, rows});
  dense_bytes_ += tensor.bytes;
  dense_.push_back(file_.data(tensor));
  return {file_.data(tensor).data(), tensor.type, static_cast<int>(rows), static_cast<int>(cols)};
}

Vector Binder::vector(const std::string& name, int64_t size) {
  return table(name, 1, size);
}

Vector Binder::table(const std::string& name, int64_t rows, int64_t cols) {
  const gguf::TensorInfo& tensor = take(name, {cols, rows});
  dense_bytes_ += tensor.bytes;
  dense_.push_back(file_.data(tensor));
  Vector out(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  quant::decode(tensor.type, file_.data(tensor).data(), out.data(), out.size());
  return out;
}

ExpertTensor Binder::experts(const std::string& name, int64_t rows, int64_t cols, int64_t n_experts) {
  const gguf::TensorInfo& tensor = take(name, {cols, rows, n_experts});
  ExpertTensor out;
  out.type = tensor.type;
  out.rows = static_cast<int>(rows);
  out.cols = static_cast<int>(cols);
  out.shard = tensor.shard;
  out.offset = tensor.offset;
  out.expert_bytes = quant::row_bytes(tensor.type, static_cast<size_t>(cols)) * static_cast<uint64_t>(rows);
  out.expert_stride = out.expert_bytes;
  return out;
}

void Binder::refuse_unused(std::string_view architecture, int first_unused, int end_unused) const {
  for (const gguf::TensorInfo& tensor : file_.tensors()) {
    if (taken_.contains(tensor.name)) continue;
    const std::optional<int> block = block_of(tensor.name);
    if (block && *block >= first_unused && *block < end_unused) continue;
    fail(
        "{}: tensor {} is unknown for architecture {}; leaving it out could change the result, so the file "
        "is "
        "refused",
        file_.path(), quote(tensor.name), architecture);
  }
}

}  // namespace redlite::model
