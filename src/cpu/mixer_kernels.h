#pragma once

#include <cstdint>
#include <string_view>

namespace redlite::cpu {

/// Positions that one call of MixerKernels::attend covers at most. Blocks begin at multiples of it, so the
/// order of every sum over positions is a matter of the positions alone: not of the chunk that a token came
/// in, nor of the threads.
inline constexpr int kAttendBlock = 256;

/// Query heads of one K/V head and a block of its positions.
struct AttendBlock {
  const float* q;  ///< [group][q_stride], of each the first head_dim; scaled by 1 / sqrt(head_dim)
  int q_stride;
  int group;      ///< query heads that share the K/V head
  int head_dim;   ///< values of a K and of a V row
  const void* k;  ///< [n][head_dim] f32 or f16
  const void* v;  ///< [n][head_dim]
  bool f16;       ///< K and V are binary16
  int n;          ///< positions, at most kAttendBlock
};

/// Softmax over some positions for `group` heads, unfinished: the weighted sum of V is o / sum.
struct AttendResult {
  float* max;  ///< [group] largest score
  float* sum;  ///< [group] of exp(score - max)
  float* o;    ///< [group][head_dim] of exp(score - max) * V
};

/// Consecutive tokens of a DeltaNet head.
struct DeltaTokens {
  int n;
  const float* q;      ///< [n][dim]
  const float* k;      ///< [n][dim]
  const float* v;      ///< [n][dim]
  const float* decay;  ///< [n]
  const float* beta;   ///< [n]
  float* o;            ///< [n][dim], written
};

/// What attention and DeltaNet compute beside their matrix products, in one instruction set. All functions
/// are pure and thread-safe; sizes are any positive ones. The bits are the same in every instruction set:
/// sums along a row are taken in 16 lanes and folded as kernels/layout.h defines, sums over positions and
/// over rows of a state in rising order, each with fused multiply-adds; exponentials are kernels/exp.h.
struct MixerKernels {
  std::string_view name;  ///< as Kernels::name

  /// Attention over one block.
  void (*attend)(const AttendBlock& block, const AttendResult& result);
  /// Adds the result of the following block to `total`.
  void (*merge)(const AttendResult& total, const AttendResult& next, int group, int head_dim);

  /// Causal depthwise convolution and SiLU of one token, n channels:
  /// y[c] = silu(sum over i < taps of inputs[i][c] * w[i * w_stride + c]); inputs[0] is the oldest.
  void (*conv_silu)(const float* const* inputs, const float* w, int w_stride, int taps, int n, float* y);

  /// x *= scale / sqrt(sum(x^2) + eps)
  void (*l2_normalize)(float* x, int n, float eps, float scale);

  /// The gated delta rule for some tokens of one head; state is S[dim][dim], rows along k, columns along v:
  /// for each token S *= decay; S += k (beta * (v - S'k))'; o = S'q. The bits do not depend on how tokens are
  /// divided between calls. `next` is a state that the caller will need soon, or nullptr.
  void (*delta_rule)(float* state, const DeltaTokens& tokens, int dim, const float* next);

  /// y[i] = x[i] / rms(x) * weight[i] * silu(gate[i])
  void (*gated_norm)(const float* x, const float* weight, const float* gate, float eps, int n, float* y);

  /// y[i] = x[i] * scale * sigmoid(gate[i])
  void (*gate)(const float* x, float scale, const float* gate, int n, float* y);

  /// y[i] += scale * x[i]
  void (*add_scaled)(const float* x, float scale, int n, float* y);
};

/// Those that belong to the kernels of this name; nullptr when this build or processor lacks them.
const MixerKernels* find_mixer_kernels(std::string_view name);

/// Portable ones, and the meaning of the others.
extern const MixerKernels kScalarMixerKernels;

}  // namespace redlite::cpu
