#include "cpu/kernels.h"

#include <algorithm>

#include "base/error.h"
#include "cpu/kernels/layout.h"

namespace redlite::cpu {
namespace {

using Access = ActivationsAccess;

size_t block_bytes(int tokens, int cols) {
  return static_cast<size_t>(tokens) * static_cast<size_t>(Access::blocks_in_row(cols)) *
         sizeof(ActivationBlock);
}

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> found;
  for (const Kernels* k : {avx512_dl_kernels(), avx512_kernels(), avx2_kernels(), neon_kernels()}) {
    if (k != nullptr) found.push_back(k);
  }
  found.push_back(&scalar_kernels());
  return found;
}

}  // namespace

Activations::Activations(int max_tokens, int max_cols)
    : blocks_(block_bytes(max_tokens, max_cols)),
      values_(static_cast<size_t>(max_tokens) * Access::padded(max_cols)) {}

size_t Activations::bytes_needed(int max_tokens, int max_cols) {
  return block_bytes(max_tokens, max_cols) +
         static_cast<size_t>(max_tokens) * Access::padded(max_cols) * sizeof(float);
}

void Activations::resize(int n_tokens, int cols) {
  RL_CHECK(block_bytes(n_tokens, cols) <= blocks_.size() &&
               static_cast<size_t>(n_tokens) * Access::padded(cols) <= values_.size(),
           "{} tokens of {}", n_tokens, cols);
  n_tokens_ = n_tokens;
  cols_ = cols;
}

void Activations::gather(const Activations& source, std::span<const int32_t> rows, int first) {
  RL_CHECK(source.cols_ == cols_ && first + static_cast<int>(rows.size()) <= n_tokens_, "{} columns into {}",
           source.cols_, cols_);
  for (const int32_t row : rows) {
    std::copy_n(Access::blocks(source, row), Access::blocks_in_row(cols_), Access::blocks(*this, first));
    std::copy_n(Access::values(source, row), Access::padded(cols_), Access::values(*this, first));
    ++first;
  }
}

const Kernels* find_kernels(std::string_view name) {
  for (const Kernels* k : usable_kernels()) {
    if (k->name == name) return k;
  }
  return nullptr;
}

std::vector<std::string_view> available_kernels() {
  std::vector<std::string_view> names;
  for (const Kernels* k : usable_kernels()) names.push_back(k->name);
  return names;
}

const Kernels& best_kernels() {
  return *usable_kernels().front();
}

}  // namespace redlite::cpu
