#include "session/prompt_states.h"

#include <algorithm>
#include <utility>

namespace redlite::session {

void restore_sequence(model::Sequence& sequence, std::span<const std::byte> positions, int n, int position,
                      const model::Mark* mark) {
  sequence.load_positions(n, positions);
  if (mark != nullptr) {
    sequence.rewind(*mark);
  } else {
    sequence.rewind(*sequence.load_mark(position, {}));
  }
}

PromptStates::PromptStates(const StateShape& shape, uint64_t budget, std::unique_ptr<StateFolder> folder)
    : shape_(shape), budget_(budget), folder_(std::move(folder)) {}

std::optional<PromptStates::Found> PromptStates::find(std::span<const model::Token> prompt, int least) const {
  std::optional<Found> found;
  for (const Entry& entry : states_) {
    const KeptState& state = *entry.state;
    const int place = best_place(state.tokens, state.marks, shape_.mark_bytes == 0, prompt);
    if (place > least) {
      least = place;
      found = Found{place, entry.state};
    }
  }
  if (folder_) {
    if (std::optional<StateFolder::Found> file = folder_->find(prompt, least))
      found = Found{file->position, std::move(*file)};
  }
  return found;
}

bool PromptStates::restore(const Found& found, model::Sequence& sequence, std::vector<model::Token>& tokens,
                           std::vector<PlacedMark>& marks) {
  tokens.clear();
  marks.clear();
  const auto mark_at = [&] {
    const auto at = std::ranges::find(marks, found.position, &PlacedMark::position);
    return at != marks.end() ? at->mark.get() : nullptr;
  };
  if (const auto* kept = std::get_if<std::shared_ptr<const KeptState>>(&found.where)) {
    const KeptState& state = **kept;
    const int n = static_cast<int>(state.tokens.size());
    tokens.assign(state.tokens.begin(), state.tokens.begin() + found.position);
    std::ranges::copy_if(state.marks, std::back_inserter(marks),
                         [&](const PlacedMark& m) { return m.position <= found.position; });
    restore_sequence(sequence, state.positions.span(), n, found.position, mark_at());
    const auto entry = std::ranges::find(states_, *kept, &Entry::state);
    if (entry != states_.end() && marks.size() == state.marks.size()) {
      bytes_ -= state.bytes();
      states_.erase(entry);
    } else if (entry != states_.end()) {
      states_.splice(states_.begin(), states_, entry);
    }
    return true;
  }

  const auto& file = std::get<StateFolder::Found>(found.where);
  std::optional<StateFolder::Loaded> loaded = folder_->load(file);
  if (!loaded) {
    sequence.reset();
    return false;
  }
  const StateHead& head = loaded->head;
  tokens.assign(head.tokens.begin(), head.tokens.begin() + found.position);
  for (size_t i = 0; i < head.marks.size() && head.marks[i] <= found.position; ++i)
    marks.push_back({head.marks[i], sequence.load_mark(head.marks[i], loaded->content.marks[i].span()), {}});
  restore_sequence(sequence, loaded->content.positions.span(), static_cast<int>(head.tokens.size()),
                   found.position, mark_at());
  return true;
}

void PromptStates::keep(std::shared_ptr<const KeptState> state, bool saved) {
  // What it continues is of no more use.
  for (auto entry = states_.begin(); entry != states_.end();) {
    const std::vector<model::Token>& old = entry->state->tokens;
    if (old.size() <= state->tokens.size() && std::equal(old.begin(), old.end(), state->tokens.begin())) {
      bytes_ -= entry->state->bytes();
      entry = states_.erase(entry);
    } else {
      ++entry;
    }
  }
  const uint64_t bytes = state->bytes();
  if (!make_room(bytes)) {
    if (!saved) save(std::move(state), false);
    return;
  }
  bytes_ += bytes;
  states_.push_front({std::move(state), saved, Clock::now()});
}

bool PromptStates::save(std::shared_ptr<const KeptState> state, bool wait) {
  return folder_ && folder_->save(std::move(state), wait);
}

void PromptStates::save_kept(Clock::time_point time) {
  if (!folder_) return;
  for (Entry& entry : states_) {
    if (entry.saved || entry.since > time) continue;
    if (!save(entry.state, false)) return;
    entry.saved = true;
  }
}

bool PromptStates::unsaved() const {
  return folder_ && std::ranges::any_of(states_, [](const Entry& entry) { return !entry.saved; });
}

bool PromptStates::make_room(uint64_t bytes) {
  if (other_bytes_ + bytes > budget_) return false;
  while (bytes_ + other_bytes_ + bytes > budget_) let_go(false);
  return true;
}

void PromptStates::let_go(bool wait) {
  Entry entry = std::move(states_.back());
  states_.pop_back();
  bytes_ -= entry.state->bytes();
  if (!entry.saved) save(std::move(entry.state), wait);
}

void PromptStates::flush() {
  if (!folder_) return;
  while (!states_.empty()) let_go(true);
  folder_->flush();
}

}  // namespace redlite::session
