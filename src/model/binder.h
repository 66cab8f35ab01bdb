#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "model/weights.h"

namespace redlite::model {

/// Hands out a file's tensors by name, checking shape and type, and remembers which were taken, so that a
/// tensor nobody asked for is noticed. Every failure is an Error that names file and tensor.
class Binder {
 public:
  explicit Binder(const gguf::File& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  Matrix matrix(const std::string& name, int64_t rows, int64_t cols);
  Vector vector(const std::string& name, int64_t size);
  /// A short matrix decoded to F32, row by row.
  Vector table(const std::string& name, int64_t rows, int64_t cols);
  ExpertTensor experts(const std::string& name, int64_t rows, int64_t cols, int64_t n_experts);

  /// The tensors handed out, the experts apart.
  const std::vector<std::span<const std::byte>>& dense() const { return dense_; }
  /// Bytes in the file of the tensors handed out, the experts apart.
  uint64_t dense_bytes() const { return dense_bytes_; }

  /// Throws an Error on a tensor that nobody asked for, blocks [first_unused, end_unused) excepted (MTP):
  /// a scale, bias or factor that is left out would silently change the result.
  void refuse_unused(std::string_view architecture, int first_unused, int end_unused) const;

 private:
  const gguf::TensorInfo& take(const std::string& name, std::initializer_list<int64_t> shape);

  const gguf::File& file_;
  std::set<std::string, std::less<>> taken_;
  std::vector<std::span<const std::byte>> dense_;
  uint64_t dense_bytes_ = 0;
};

/// "blk.3.attn_norm.weight"
std::string block_tensor(int layer, std::string_view name);

}  // namespace redlite::model
