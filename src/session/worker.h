#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/answer_writer.h"
#include "session/engine.h"
#include "session/fair_queue.h"
#include "session/job.h"
#include "session/piece_size.h"
#include "session/prompt_states.h"
#include "session/slot.h"

namespace redlite::session {

/// What the engine's callers and its thread share.
struct Shared {
  const std::shared_ptr<WakeUp> wake = std::make_shared<WakeUp>();
  std::atomic<bool> cancel_all{false};

  std::mutex mutex;               ///< of all that follows
  std::condition_variable ended;  ///< a request has
  FairQueue queue;
  Statistics statistics;
  ExpertMap experts;
  Clock::time_point experts_wanted;  ///< when someone last asked for them
  double request_seconds = 1;        ///< what a request takes, lately
  bool accepting = true;
  bool stop = false;  ///< the thread is to end when it has nothing to do
};

/// The engine's thread: gives requests seats, and computes pieces of prompts and tokens of answers in turn.
class Worker {
 public:
  Worker(const tokenizer::Tokenizer& tokenizer, model::Runner& runner, PromptStates states,
         const EngineOptions& options, Shared& shared);

  /// Returns when Shared::stop is set and nothing is left to do, all states written.
  void run();

 private:
  /// A slot and the request that is being answered in it.
  struct Seat {
    explicit Seat(std::unique_ptr<model::Sequence> sequence) : slot(std::move(sequence)) {}

    Slot slot;
    std::shared_ptr<Answer::Job> job;  ///< null: at rest
    std::optional<AnswerWriter> writer;
    std::deque<int> places;  ///< to be marked on the way through the prompt
    bool reading = false;    ///< the prompt; otherwise writing the answer
    model::Token next = -1;  ///< while writing: to be appended
    Usage usage;
    Clock::time_point phase_start;  ///< of reading or writing

    /// While at rest: a prompt that shares so many tokens goes on with this conversation; with less, it is
    /// another one.
    int turn = 0;
    Clock::time_point rested;  ///< since when
    bool saved = true;         ///< in the folder

    int prompt_size() const { return static_cast<int>(job->request.prompt.size()); }
    bool cancelled(const Shared& shared) const { return job->cancelled() || shared.cancel_all; }
  };

  void end_cancelled();
  void take_from_queue();
  bool work();
  void rest();

  Seat& find_seat(std::span<const model::Token> prompt);
  void begin(const std::shared_ptr<Answer::Job>& job);
  void plan_marks(Seat& seat);
  void read_piece(Seat& seat);
  void decode(std::span<Seat* const> seats);
  bool compute(std::span<Seat* const> seats, const std::function<void()>& pass);
  template <typename Result>
  void step(Seat& seat, const Result& result);
  void finish(Seat& seat, Finished end);
  void end(Seat& seat, Event event);

  bool worth_keeping(const Seat& seat) const;
  void keep(Seat& seat);
  void save_rested(bool all);
  void mark(Seat& seat, std::span<const float> logits);
  bool make_room(uint64_t more);
  uint64_t marks_in_slots() const;
  void publish(bool idle);

  const tokenizer::Tokenizer& tokenizer_;
  model::Runner& runner_;
  PromptStates states_;
  const EngineOptions& options_;
  Shared& shared_;
  std::vector<std::unique_ptr<Seat>> seats_;
  PieceSize piece_size_;
  double reading_lead_ = 0;  ///< seconds that reading was given more than writing, while both wanted some
  Clock::time_point published_;
};

}  // namespace redlite::session
