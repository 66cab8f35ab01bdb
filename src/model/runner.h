#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace redlite::model {

using Token = int32_t;

/// Which tokens of a forward pass want logits.
enum class LogitsFor : uint8_t { None, Last, All };

/// A stage of the forward pass, for comparing runners. Values are row-major [n_tokens][width].
enum class Stage : uint8_t {
  Embedding,      ///< [n_embd]
  MixerInput,     ///< [n_embd] after attn_norm
  MixerOutput,    ///< [n_embd] what attention or DeltaNet adds to the residual
  FfnInput,       ///< [n_embd] after ffn_norm
  RouterLogits,   ///< [n_experts]
  ExpertIds,      ///< [n_experts_used], as float
  ExpertWeights,  ///< [n_experts_used]
  FfnOutput,      ///< [n_embd] what the experts add to the residual
  LayerOutput,    ///< [n_embd] the residual after the layer
  FinalNorm,      ///< [n_embd]
  Logits,         ///< [n_vocab]
};
std::string_view stage_name(Stage stage);

/// Receives intermediate values: layer (-1 outside the layers), position of the first token, and the values
/// of consecutive tokens. Called in order of computation; the span is valid during the call only.
using Tap =
    std::function<void(Stage stage, int layer, int first_position, int width, std::span<const float> values)>;

/// Told how many of the tokens of a forward() over several are done, in fractions of a token, layer by layer.
using ProgressHook = std::function<void(double tokens_done)>;

/// A place in a runner's sequence to come back to.
class Mark {
 public:
  virtual ~Mark() = default;
};

/// A model with the state of one sequence. Not thread-safe.
class Runner {
 public:
  virtual ~Runner() = default;

  /// Appends tokens to the sequence. Returns logits [n][n_vocab] of none, the last or all of them, valid
  /// until the next call. Throws Error when the sequence would outgrow capacity() or an expert cannot be
  /// read; the state is then undefined until reset().
  virtual std::span<const float> forward(std::span<const Token> tokens, LogitsFor which) = 0;

  virtual int position() const = 0;  ///< tokens so far
  virtual int capacity() const = 0;  ///< most tokens the state can hold
  virtual void reset() = 0;          ///< back to the empty sequence

  /// Remembers this place: recurrent states are copied, keys and values stay where they are.
  virtual std::unique_ptr<Mark> mark() const = 0;
  /// Back to a place marked in this runner's sequence; what is appended then gives the same bits as after
  /// mark(). Only while what came before the place is still there: not after reset(), nor after tokens were
  /// appended at an earlier place that was rewound to.
  virtual void rewind(const Mark& mark) = 0;

  void set_tap(Tap tap) { tap_ = std::move(tap); }
  void set_progress(ProgressHook hook) { progress_ = std::move(hook); }

 protected:
  Tap tap_;
  ProgressHook progress_;
};

}  // namespace redlite::model
