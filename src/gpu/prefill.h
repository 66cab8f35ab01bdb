#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/arena.h"
#include "gpu/device_model.h"
#include "gpu/expert_stream.h"
#include "gpu/kernels/prefill_product.h"
#include "gpu/kernels/step.h"
#include "gpu/launcher.h"
#include "gpu/scratch.h"
#include "gpu/sequence.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::gpu {

/// A forward pass over many tokens at once: products on tensor cores with weights unpacked once for a tile of
/// tokens, experts with the chunk's tokens sorted by expert. To the same bits as the tokens one by one.
///
/// Experts that are not all on the device are brought by an ExpertStream.
class Prefill {
 public:
  /// For chunks of at most `batch` tokens; what decode's buffers say of attention and rotations goes here,
  /// too.
  Prefill(Device& device, const model::Model& model, const DeviceModel& weights, const Sequence& sequence,
          const Scratch& decode, int batch);
  /// To be called when the experts have their place: where they come from, or nullopt if all are resident;
  /// then room for those on their way is given back.
  void experts_are_placed(const std::optional<ExpertSupply>& supply);

  int batch() const { return batch_; }
  size_t bytes() const { return arena_.bytes() + (feed_ ? feed_->bytes() : 0); }  ///< of device memory

  /// Bytes of experts that all chunks took from host memory.
  uint64_t bytes_copied() const { return feed_ ? feed_->bytes_copied() : 0; }

  /// Appends the tokens at `position` and puts logits[n_logits][n_vocab] of the last n_logits of them behind
  /// those in `logits`; flip as in Step. Done when it returns. Experts that are not resident are all brought
  /// with `all_experts`, otherwise those that the tokens select, which takes a decision of the host's in
  /// every layer. `tap` may be empty. Throws Error when an expert cannot be read or the device fails; nothing
  /// of the chunk runs any more then, and the sequence's state may be anything.
  void run(const Launcher& launcher, std::span<const model::Token> tokens, int position, uint32_t flip,
           bool all_experts, int n_logits, const model::Tap& tap, std::vector<float>& logits);

 private:
  struct Pass;

  /// Tokens whose logits are computed at a time.
  static constexpr int kLogitRows = 64;
  QuantizedRows rows(int count, int n);

  Device& device_;
  const model::Model& model_;
  const model::Config& config_;
  const DeviceModel& weights_;
  const Sequence& sequence_;
  int batch_, attend_parts_;
  int proj_width_;  ///< of what a mixer projects its input to, at most
  const double* rope_frequencies_;
  Arena arena_;

  float* x_;               ///< [batch][n_embd], the residual
  float* rope_;            ///< [batch][rope_dims]
  float* floats_;          ///< [batch][widest input], a product's input as floats
  QuantizedRows rounded_;  ///< [batch], the same in 8 bits
  float* proj_;            ///< [batch][proj_width]
  float* q_;        ///< [batch][n_heads][head_dim], or DeltaNet's q [batch][n_k_heads][DeltaLayout::kHead]
  float* k_;        ///< DeltaNet's k, likewise
  float* v_;        ///< [batch][n_v_heads][state_dim]
  float* lengths_;  ///< [batch][n_k_heads][2]
  float* decays_;   ///< [batch][n_v_heads][2]
  float* core_;     ///< [batch][heads of the mixer, together]
  float* shown_;    ///< [batch][n_embd], for a tap
  float* router_;   ///< [batch][n_experts + 1]
  int32_t* ids_;    ///< [batch][n_used]
  float* shares_;   ///< [batch][n_used + 1]
  int32_t* token_;  ///< [batch * n_used], of each place of the list sorted by expert
  int32_t* selection_;  ///< [batch * n_used], likewise
  ExpertTile* tiles_;
  int32_t* first_tile_;  ///< [n_experts + 1]
  float* gate_up_;       ///< [batch * n_used][2 * ff], in the list's order
  float* hidden_;        ///< [batch * n_used][ff], likewise
  QuantizedRows hidden_rounded_;
  float* parts_;         ///< [batch][n_used][n_embd]
  float* shared_parts_;  ///< [batch][n_embd]
  float* logits_;        ///< [kLogitRows][n_vocab]
  Step* step_;

  HostBuffer host_step_;    ///< Step
  HostBuffer host_x_;       ///< float [batch][n_embd]
  HostBuffer host_logits_;  ///< float [kLogitRows][n_vocab]

  std::optional<ExpertStream> feed_;  ///< none where all experts are resident
};

}  // namespace redlite::gpu
