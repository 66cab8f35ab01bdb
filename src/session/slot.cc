#include "session/slot.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "session/state_file.h"

namespace redlite::session {

Slot::Slot(std::unique_ptr<model::Sequence> sequence)
    : sequence_(std::move(sequence)), bytes_(sequence_->state_bytes()), every_(bytes_ && bytes_->mark == 0) {}

uint64_t Slot::mark_bytes() const {
  uint64_t sum = 0;
  for (const PlacedMark& m : marks_) sum += m.mark->bytes().size() + m.logits.size() * sizeof(float);
  return sum;
}

void Slot::clear() {
  forget();
  sequence_->reset();
}

void Slot::forget() {
  tokens_.clear();
  marks_.clear();
}

void Slot::appended(std::span<const model::Token> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  RL_CHECK(sequence_->position() == position(), "{} tokens in a sequence of {}", position(),
           sequence_->position());
}

void Slot::add_mark(std::span<const float> logits) {
  if (!marks_.empty() && marks_.back().position == position()) {
    if (!logits.empty()) marks_.back().logits.assign(logits.begin(), logits.end());
    return;
  }
  if (marks_.size() == kMostMarks) marks_.erase(marks_.begin() + 1);
  marks_.push_back({position(), sequence_->mark(), {logits.begin(), logits.end()}});
}

bool Slot::thin() {
  if (marks_.size() <= 2) return false;
  marks_.erase(marks_.begin() + 1, marks_.end() - 1);
  return true;
}

void Slot::rewind(int position) {
  std::erase_if(marks_, [&](const PlacedMark& m) { return m.position > position; });
  tokens_.resize(static_cast<size_t>(position));
  if (!marks_.empty() && marks_.back().position == position) {
    sequence_->rewind(*marks_.back().mark);
  } else if (position == 0) {
    sequence_->reset();
  } else {
    RL_CHECK(every_, "no mark at {}", position);
    sequence_->rewind(*sequence_->load_mark(position, {}));
  }
}

void Slot::recover() {
  // Keys and values before the pass are whole; recurrent states are not.
  rewind(every_ ? position() : last_mark());
}

std::shared_ptr<const KeptState> Slot::copy() const {
  // What follows the last mark is of no use without it.
  const int n = every_ ? position() : last_mark();
  auto state = std::make_shared<KeptState>();
  state->tokens.assign(tokens_.begin(), tokens_.begin() + n);
  state->marks = marks_;
  state->positions = AlignedBuffer<std::byte>(bytes_->position * static_cast<uint64_t>(n));
  sequence_->save_positions(n, state->positions.span());
  return state;
}

uint64_t Slot::copy_bytes() const {
  return bytes_->position * static_cast<uint64_t>(every_ ? position() : last_mark()) + mark_bytes();
}

void Slot::copy_from(const Slot& other, int position) {
  AlignedBuffer<std::byte> positions(bytes_->position * static_cast<uint64_t>(position));
  other.sequence_->save_positions(position, positions.span());
  tokens_.assign(other.tokens_.begin(), other.tokens_.begin() + position);
  marks_.clear();
  std::ranges::copy_if(other.marks_, std::back_inserter(marks_),
                       [&](const PlacedMark& m) { return m.position <= position; });
  const bool marked = !marks_.empty() && marks_.back().position == position;
  restore_sequence(*sequence_, positions.span(), position, position,
                   marked ? marks_.back().mark.get() : nullptr);
}

bool Slot::restore(PromptStates& states, const PromptStates::Found& found) {
  return states.restore(found, *sequence_, tokens_, marks_);
}

}  // namespace redlite::session
