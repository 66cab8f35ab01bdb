#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redlite::model {

using Token = int32_t;

/// The token of the greatest logit, of equal ones that of the lowest id; NaN is less than everything. Throws
/// Error if the greatest is not finite, which only damaged weights can cause.
Token best_token(std::span<const float> logits);

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

/// Asked between layers whether to give up.
using StopHook = std::function<bool()>;

/// Thrown by forward() when the stop hook said so.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

/// A place in a sequence to come back to. Immutable.
class Mark {
 public:
  virtual ~Mark() = default;
  /// The recurrent states, for Sequence::load_mark(); empty for runners whose states cannot be saved.
  virtual std::span<const std::byte> bytes() const { return {}; }
};

/// The state of one sequence: recurrent states, keys and values. Belongs to the runner that made it, which
/// must outlive it. Not thread-safe, nor to be used while its runner computes.
class Sequence {
 public:
  virtual ~Sequence() = default;

  virtual int position() const = 0;  ///< tokens so far
  virtual int capacity() const = 0;  ///< most tokens the state can hold
  virtual void reset() = 0;          ///< back to the empty sequence

  /// Remembers this place: recurrent states are copied, keys and values stay where they are.
  virtual std::unique_ptr<Mark> mark() const = 0;
  /// Back to a place marked in this sequence, or in another one of the runner's whose keys and values were
  /// loaded into this; what is appended then gives the same bits as after mark(). Only while what came before
  /// the place is still there: not after reset(), nor after tokens were appended at an earlier place that was
  /// rewound to.
  virtual void rewind(const Mark& mark) = 0;

  /// Sizes of the state as bytes, which mean something to sequences of a runner of the same state_format()
  /// only.
  struct StateBytes {
    uint64_t mark = 0;      ///< the recurrent states of a mark; 0: every position is as good as marked
    uint64_t position = 0;  ///< keys and values of a position
  };
  /// nullopt: this runner's state cannot be copied out, and what follows may not be called.
  virtual std::optional<StateBytes> state_bytes() const { return std::nullopt; }
  /// The mark of which these were the bytes().
  virtual std::unique_ptr<Mark> load_mark(int position, std::span<const std::byte> bytes) const;
  /// Keys and values of the first n positions, at most position().
  virtual void save_positions(int n, std::span<std::byte> out) const;
  /// ... and back: the sequence is then of n tokens, and undefined until rewind() to one of its marks.
  virtual void load_positions(int n, std::span<const std::byte> bytes);
};

/// Tokens to be appended to a sequence in one pass with others.
struct Part {
  Sequence* sequence;
  std::span<const Token> tokens;
  LogitsFor which;
};

/// A model with the state of one sequence of its own, and of others that it made. Not thread-safe.
class Runner {
 public:
  virtual ~Runner() = default;

  /// Appends tokens to the runner's own sequence. Returns logits [n][n_vocab] of none, the last or all of
  /// them, valid until the next call. Throws Error when the sequence would outgrow capacity() or an expert
  /// cannot be read, Stopped when the stop hook says so; the state is then undefined until reset() or
  /// rewind().
  virtual std::span<const float> forward(std::span<const Token> tokens, LogitsFor which) = 0;
  /// forward() for best_token() of the last token's logits: a GPU need not bring the others to the host.
  virtual Token forward_best(std::span<const Token> tokens);

  virtual int position() const = 0;  ///< tokens so far
  virtual int capacity() const = 0;  ///< most tokens a sequence can hold
  virtual void reset() = 0;          ///< back to the empty sequence
  /// As Sequence's, of the own sequence.
  virtual std::unique_ptr<Mark> mark() const = 0;
  virtual void rewind(const Mark& mark) = 0;

  /// How many sequences can be computed together. 1: make_sequence() gives the runner's own.
  virtual int most_sequences() const { return 1; }
  virtual std::unique_ptr<Sequence> make_sequence();
  /// forward() for tokens of several distinct sequences at once: each gets the same bits as alone. Returns
  /// the logits of all of them, in their order.
  virtual std::span<const float> forward_together(std::span<const Part> parts);
  /// forward_best() for each of the parts, whatever their `which`.
  virtual std::vector<Token> forward_best_together(std::span<const Part> parts);
  /// What the bytes of saved states depend on, besides the model: "cpu, f32 keys and values"; empty if states
  /// cannot be saved.
  virtual std::string state_format() const { return {}; }

  void set_tap(Tap tap) { tap_ = std::move(tap); }
  void set_progress(ProgressHook hook) { progress_ = std::move(hook); }
  /// Runners that compute a pass as a whole do not ask.
  void set_stop(StopHook hook) { stop_ = std::move(hook); }

 protected:
  Tap tap_;
  ProgressHook progress_;
  StopHook stop_;
};

}  // namespace redlite::model
