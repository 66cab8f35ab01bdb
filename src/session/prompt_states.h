#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "session/job.h"
#include "session/kept_state.h"
#include "session/state_folder.h"

namespace redlite::session {

/// States of conversations that no sequence holds at the moment: in memory, within a budget, least recently
/// used first out; and in a folder, if there is one. Driven by one thread.
class PromptStates {
 public:
  /// `folder` may be null.
  PromptStates(const StateShape& shape, uint64_t budget, std::unique_ptr<StateFolder> folder);

  /// Where the state is that serves a prompt better than `least` tokens: one in memory or in the folder.
  struct Found {
    int position = 0;
    std::variant<std::shared_ptr<const KeptState>, StateFolder::Found> where;
  };
  std::optional<Found> find(std::span<const model::Token> prompt, int least) const;

  /// Puts the first `position` tokens of it into a sequence, which is then at that place, and gives tokens
  /// and marks up to there. False, with the sequence empty, when it cannot be read; find() then finds
  /// something else. A conversation that goes on where it ended leaves the memory.
  bool restore(const Found& found, model::Sequence& sequence, std::vector<model::Token>& tokens,
               std::vector<PlacedMark>& marks);

  /// Keeps a state in memory if it fits; otherwise, and when it has to leave, in the folder, unless it was
  /// `saved` there before.
  void keep(std::shared_ptr<const KeptState> state, bool saved);
  /// Has a state written to the folder, if there is one, and keeps nothing in memory. False: there is none,
  /// or too much is being written already; `wait`: until it is not.
  bool save(std::shared_ptr<const KeptState> state, bool wait);
  /// Has what was kept before `time` written, too, as much as the folder takes at a time.
  void save_kept(Clock::time_point time);
  /// Something in memory is not in the folder, though there is one.
  bool unsaved() const;
  /// How much of the budget is taken by the marks in sequences.
  void set_other_bytes(uint64_t bytes) { other_bytes_ = bytes; }
  /// Lets states go until `bytes` more fit into the budget. False: they never do.
  bool make_room(uint64_t bytes);
  /// Writes everything to the folder, if there is one.
  void flush();

  bool on_disk() const { return folder_ != nullptr; }
  uint64_t budget() const { return budget_; }
  uint64_t bytes() const { return bytes_; }
  int size() const { return static_cast<int>(states_.size()); }
  const StateFolder* folder() const { return folder_.get(); }

 private:
  struct Entry {
    std::shared_ptr<const KeptState> state;
    bool saved;  ///< in the folder, too
    Clock::time_point since;
  };
  void let_go(bool wait);

  const StateShape shape_;
  const uint64_t budget_;
  std::unique_ptr<StateFolder> folder_;
  std::list<Entry> states_;  ///< most recently used in front
  uint64_t bytes_ = 0;
  uint64_t other_bytes_ = 0;
};

/// Puts copied keys and values and a mark into a sequence. `mark` may be null where every position is as good
/// as marked.
void restore_sequence(model::Sequence& sequence, std::span<const std::byte> positions, int n, int position,
                      const model::Mark* mark);

}  // namespace redlite::session
