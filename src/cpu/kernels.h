#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned.h"
#include "model/weights.h"

namespace redlite::cpu {

/// Activations of some tokens, quantised once to 8 bits with a scale for each 16 values and shared by every
/// product with them; products with F32, F16 and BF16 weights use the unrounded values, which are kept too.
/// The layout is the kernels' own business (kernels/layout.h); it is the same for all instruction sets.
class Activations {
 public:
  Activations() = default;
  /// Room for up to max_tokens rows of up to max_cols values; allocates bytes_needed().
  Activations(int max_tokens, int max_cols);
  static size_t bytes_needed(int max_tokens, int max_cols);

  /// Sets the shape, within the room; the values are undefined until quantised or copied.
  void resize(int n_tokens, int cols);
  /// Row first + i becomes row rows[i] of `source` (tokens gathered for one expert); the shape is set before.
  /// Disjoint rows may be filled by different threads.
  void gather(const Activations& source, std::span<const int32_t> rows, int first);

  int n_tokens() const { return n_tokens_; }
  int cols() const { return cols_; }

 private:
  friend struct ActivationsAccess;
  int n_tokens_ = 0;
  int cols_ = 0;
  AlignedBuffer<std::byte> blocks_;  ///< ActivationBlock[n_tokens][blocks of a row]
  AlignedBuffer<float> values_;      ///< [n_tokens][cols, rounded up to 16], padded with zeros
};

/// The arithmetic of the CPU runner in one instruction set. All functions are pure and thread-safe, and their
/// bits are the same in every instruction set, because the order of every sum is defined (kernels/layout.h).
/// A product's bits depend neither on how its rows or tokens are divided between calls nor on how many tokens
/// are multiplied at once.
struct Kernels {
  std::string_view name;  ///< "scalar", "avx2", "avx512", "avx512_dl", "neon", ...

  /// Quantises rows [first, last) of `out`, which has its shape already, from x[row * stride]. Disjoint rows
  /// may be quantised by different threads.
  void (*quantize)(const float* x, size_t stride, int first, int last, Activations& out);

  /// y[(t - t_first) * y_stride + r] = W.row(r) . x[t] for rows r in [first, last) and tokens t in
  /// [t_first, t_last).
  void (*multiply)(const model::Matrix& w, int first, int last, const Activations& x, int t_first, int t_last,
                   float* y, size_t y_stride);

  /// Router logits in F32 in the order that model/router.h defines, for experts [first, last) and n_tokens
  /// tokens: logits[t * logits_stride + expert] from x[t * x_stride]; w is n_experts x n_embd of any type.
  /// Several tokens share each reading of the weights.
  void (*router)(const model::Matrix& w, int first, int last, const float* x, size_t x_stride, int n_tokens,
                 float* logits, size_t logits_stride);

  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  /// y[i] = silu(gate[i]) * up[i]
  void (*silu_multiply)(const float* gate, const float* up, int n, float* y);
};

/// The kernels by name, or nullptr when this build or processor lacks them.
const Kernels* find_kernels(std::string_view name);
/// Names usable on this processor, best first.
std::vector<std::string_view> available_kernels();
/// The best of them.
const Kernels& best_kernels();

}  // namespace redlite::cpu
