#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/kept_state.h"
#include "session/prompt_states.h"

namespace redlite::session {

/// A sequence with the conversation in it: its tokens, and the places from which it can go on.
class Slot {
 public:
  explicit Slot(std::unique_ptr<model::Sequence> sequence);

  model::Sequence& sequence() { return *sequence_; }
  const std::vector<model::Token>& tokens() const { return tokens_; }
  const std::vector<PlacedMark>& marks() const { return marks_; }
  int position() const { return static_cast<int>(tokens_.size()); }
  int last_mark() const { return marks_.empty() ? 0 : marks_.back().position; }
  uint64_t mark_bytes() const;  ///< of all marks
  uint64_t next_mark_bytes() const { return bytes_ ? bytes_->mark : 0; }
  /// Whether every position is as good as marked.
  bool every() const { return every_; }
  /// Whether its state can be copied out.
  bool copyable() const { return bytes_.has_value(); }

  void clear();
  /// Forgets what it holds without touching the sequence, whose device may have failed; the next conversation
  /// begins with clear() or with a state of its own.
  void forget();
  /// These tokens were appended to the sequence.
  void appended(std::span<const model::Token> tokens);
  /// Marks the present place. Of more than kMostMarks the second oldest goes: the first is the one that other
  /// conversations are likeliest to share, the last ones those that this one goes on from.
  void add_mark(std::span<const float> logits);
  /// Forgets all marks but the first and the last; returns whether there were others.
  bool thin();
  /// Back to a place that best_place() found.
  void rewind(int position);
  /// After a pass that failed or was stopped: back to the last place that is whole.
  void recover();

  std::shared_ptr<const KeptState> copy() const;
  uint64_t copy_bytes() const;
  /// Becomes the beginning of what another slot holds.
  void copy_from(const Slot& other, int position);
  /// Becomes what was found; see PromptStates::restore().
  bool restore(PromptStates& states, const PromptStates::Found& found);

 private:
  std::unique_ptr<model::Sequence> sequence_;
  std::optional<model::Sequence::StateBytes> bytes_;
  bool every_;
  std::vector<model::Token> tokens_;
  std::vector<PlacedMark> marks_;
};

}  // namespace redlite::session
