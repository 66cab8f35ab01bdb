#include "session/worker.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace redlite::session {
namespace {

/// Most tokens of a prompt in one pass.
constexpr int kMostPiece = 2048;
/// Fewer tokens than this are read again rather than kept.
constexpr int kWorthMarking = 16;
/// A long prompt is marked every so often, so that little is lost when its reading is stopped.
constexpr int kCheckpoint = 1024;
/// So many seconds of reading, at most, entitle those who write to as many.
constexpr double kMostLead = 0.5;

/// `of` fades, over about ten seconds of work, as `seconds` of it go by.
double faded(double of, double seconds) {
  return of * std::exp(-seconds / 10);
}

}  // namespace

Worker::Worker(const tokenizer::Tokenizer& tokenizer, model::Runner& runner, PromptStates states,
               const EngineOptions& options, Shared& shared)
    : tokenizer_(tokenizer),
      runner_(runner),
      states_(std::move(states)),
      options_(options),
      shared_(shared),
      piece_size_(kMostPiece) {
  const int parallel = std::clamp(options.parallel, 1, runner.most_sequences());
  for (int i = 0; i < parallel; ++i) seats_.push_back(std::make_unique<Seat>(runner.make_sequence()));
  shared_.statistics.parallel = parallel;
  publish(true);
}

void Worker::run() {
  for (;;) {
    end_cancelled();
    take_from_queue();
    save_rested(false);
    if (work()) {
      publish(false);
      continue;
    }
    publish(true);
    {
      const std::lock_guard lock(shared_.mutex);
      if (shared_.stop && shared_.queue.size() == 0) break;
    }
    rest();
  }
  save_rested(true);
  states_.flush();
  publish(true);
}

/// Until there is something to do.
void Worker::rest() {
  const bool to_save = states_.unsaved() || std::ranges::any_of(seats_, [&](const auto& seat) {
                         return states_.on_disk() && worth_keeping(*seat);
                       });
  const bool writing = states_.on_disk() && states_.folder()->writing();  // which is to be told
  std::unique_lock lock(shared_.wake->mutex);
  const auto raised = [&] { return std::exchange(shared_.wake->raised, false); };
  if (to_save || writing) {
    constexpr std::chrono::milliseconds kSoon{50}, kLeast{10};
    shared_.wake->changed.wait_for(lock, writing ? kSoon : std::max(options_.save_after, kLeast), raised);
  } else {
    shared_.wake->changed.wait(lock, raised);
  }
}

void Worker::end_cancelled() {
  for (const auto& seat : seats_) {
    if (seat->job && seat->cancelled(shared_)) finish(*seat, {FinishReason::Cancelled, {}, {}});
  }
  std::deque<FairQueue::Item> gone;
  {
    const std::lock_guard lock(shared_.mutex);
    if (shared_.cancel_all) {
      while (FairQueue::Item item = shared_.queue.pop()) gone.push_back(std::move(item));
    } else {
      gone = shared_.queue.take_cancelled();
    }
    shared_.statistics.cancelled += gone.size();
  }
  for (const FairQueue::Item& job : gone) {
    Finished end{FinishReason::Cancelled, {}, {}};
    end.usage.prompt_tokens = static_cast<int>(job->request.prompt.size());
    end.usage.queue_seconds = seconds_since(job->submitted);
    job->send(std::move(end));
  }
  if (!gone.empty()) shared_.ended.notify_all();
}

void Worker::take_from_queue() {
  while (std::ranges::any_of(seats_, [](const auto& seat) { return !seat->job; })) {
    std::shared_ptr<Answer::Job> job;
    {
      const std::lock_guard lock(shared_.mutex);
      job = shared_.queue.pop();
      if (!job) return;
      ++shared_.statistics.active;
    }
    begin(job);
  }
}

/// One pass; false if there is nothing to compute.
bool Worker::work() {
  Seat* reader = nullptr;
  std::vector<Seat*> writers;
  for (const auto& seat : seats_) {
    if (!seat->job) continue;
    if (!seat->reading) {
      writers.push_back(seat.get());
    } else if (reader == nullptr || seat->slot.position() - seat->usage.cached_tokens <
                                        reader->slot.position() - reader->usage.cached_tokens) {
      reader = seat.get();  // who was given least: a short prompt does not wait for a long one
    }
  }
  if (reader == nullptr && writers.empty()) return false;
  if (reader == nullptr || writers.empty()) reading_lead_ = 0;
  const auto start = Clock::now();
  if (reader != nullptr && (writers.empty() || reading_lead_ <= 0)) {
    read_piece(*reader);
    reading_lead_ = std::min(reading_lead_ + seconds_since(start), kMostLead);
  } else {
    decode(writers);
    reading_lead_ -= seconds_since(start);
  }
  return true;
}

/// A seat at rest, with as much of the prompt in it as was kept anywhere.
Worker::Seat& Worker::find_seat(std::span<const model::Token> prompt) {
  const auto common = [&](const Seat& seat) { return common_prefix(seat.slot.tokens(), prompt); };
  for (;;) {
    Seat* from = nullptr;  // who has most of it
    int position = 0;
    for (const auto& seat : seats_) {
      if (seat->job && !seat->slot.copyable()) continue;
      const int place = best_place(seat->slot.tokens(), seat->slot.marks(), seat->slot.every(), prompt);
      if (place > position || (place == position && from != nullptr && from->job && !seat->job)) {
        from = seat.get();
        position = place;
      }
    }
    const std::optional<PromptStates::Found> found = states_.find(prompt, position);
    if (found) from = nullptr;

    Seat* to = from;
    const bool goes_on = from != nullptr && !from->job && common(*from) >= from->turn;
    if (!goes_on) {
      // Another conversation takes the seat that has been at rest for longest, best not the one it copies.
      to = nullptr;
      for (const auto& seat : seats_) {
        const auto later = [&](const Seat& s) { return std::pair(&s == from, s.rested); };
        if (!seat->job && (to == nullptr || later(*seat) < later(*to))) to = seat.get();
      }
      keep(*to);
    }
    if (found) {
      if (!to->slot.restore(states_, *found)) continue;
    } else if (to == from) {
      to->slot.rewind(position);
    } else if (from != nullptr) {
      to->slot.copy_from(from->slot, position);
    } else {
      to->slot.clear();
    }
    return *to;
  }
}

void Worker::begin(const std::shared_ptr<Answer::Job>& job) {
  const auto start = Clock::now();
  Seat* found = nullptr;
  try {
    found = &find_seat(job->request.prompt);
  } catch (const std::exception& e) {
    // No memory for a state, which may be half there; or a device that failed.
    for (const auto& seat : seats_) {
      if (!seat->job) seat->slot.forget();
    }
    {
      const std::lock_guard lock(shared_.mutex);
      ++shared_.statistics.failed;
      --shared_.statistics.active;
    }
    job->send(Failed{e.what()});
    shared_.ended.notify_all();
    return;
  }
  Seat& seat = *found;
  make_room(0);
  seat.job = job;
  const Request& request = seat.job->request;
  const int n = seat.prompt_size();
  seat.usage = {};
  seat.usage.prompt_tokens = n;
  seat.usage.cached_tokens = seat.slot.position();
  seat.usage.queue_seconds = std::chrono::duration<double>(start - seat.job->submitted).count();
  seat.phase_start = start;
  seat.reading = true;
  seat.saved = false;
  {
    const std::lock_guard lock(shared_.mutex);
    shared_.statistics.prompt_tokens += static_cast<uint64_t>(n);
    shared_.statistics.cached_tokens += static_cast<uint64_t>(seat.usage.cached_tokens);
  }
  plan_marks(seat);
  seat.job->send(ReadingProgress{seat.usage.cached_tokens, n, seat.usage.cached_tokens});
  try {
    seat.writer.emplace(tokenizer_, request, seat.slot.sequence().capacity() - n);
    if (seat.slot.position() == n) step(seat, std::vector<float>(seat.slot.marks().back().logits));
  } catch (const std::exception& e) {
    end(seat, Failed{e.what()});
  }
}

/// Of the boundaries that are left to read the first, for other conversations, and the last two; and the end
/// of the prompt, unless it is near.
void Worker::plan_marks(Seat& seat) {
  const int n = seat.prompt_size();
  int last = seat.slot.last_mark();
  std::vector<int> places;
  const auto add = [&](int place) {
    if (place < std::max(last + kWorthMarking, seat.slot.position() + 1) || place > n) return;
    places.push_back(place);
    last = place;
  };
  for (const int boundary : seat.job->request.boundaries) add(boundary);
  if (places.size() > 2) {
    const size_t first = seat.slot.marks().empty() ? 1 : 0;
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(first), places.end() - 2);
  }
  add(n);
  seat.places.assign(places.begin(), places.end());
}

void Worker::read_piece(Seat& seat) {
  const std::span<const model::Token> prompt = seat.job->request.prompt;
  const int position = seat.slot.position();
  const auto active = std::ranges::count_if(seats_, [](const auto& s) { return s->job != nullptr; });
  int n = seat.prompt_size() - position;
  if (seats_.size() > 1)
    n = std::min(n, piece_size_.next(active > 1 ? PieceSize::kShared : PieceSize::kAlone));
  n = std::min(n, kMostPiece);
  if (!seat.places.empty()) n = std::min(n, seat.places.front() - position);
  const bool last = position + n == seat.prompt_size();

  auto told = Clock::now();
  runner_.set_progress([&](double done) {
    if (seconds_since(told) < 0.05) return;
    told = Clock::now();
    seat.job->send(
        ReadingProgress{position + static_cast<int>(done), seat.prompt_size(), seat.usage.cached_tokens});
  });
  const auto start = Clock::now();
  Seat* const seats[] = {&seat};
  const model::Part part{&seat.slot.sequence(), prompt.subspan(position, n),
                         last ? model::LogitsFor::Last : model::LogitsFor::None};
  std::span<const float> logits;
  const bool done = compute(seats, [&] { logits = runner_.forward_together({&part, 1}); });
  runner_.set_progress({});
  if (!done) return;
  const double seconds = seconds_since(start);
  piece_size_.took(n, seconds);
  seat.slot.appended(part.tokens);
  {
    const std::lock_guard lock(shared_.mutex);
    Statistics& s = shared_.statistics;
    s.read_tokens += static_cast<uint64_t>(n);
    s.prefill_seconds += seconds;
    const double weight = faded(1, seconds);
    s.prefill_rate = s.prefill_rate == 0 ? n / seconds : s.prefill_rate * weight + (1 - weight) * n / seconds;
  }
  const bool planned = !seat.places.empty() && seat.places.front() == seat.slot.position();
  if (planned) seat.places.pop_front();
  if (planned || seat.slot.position() - seat.slot.last_mark() >= kCheckpoint) mark(seat, logits);
  if (last) {
    step(seat, logits);
  } else {
    seat.job->send(ReadingProgress{seat.slot.position(), seat.prompt_size(), seat.usage.cached_tokens});
  }
}

/// A token of each of these answers.
void Worker::decode(std::span<Seat* const> seats) {
  const auto start = Clock::now();
  std::vector<model::Part> parts;
  for (Seat* seat : seats)
    parts.push_back({&seat->slot.sequence(), {&seat->next, 1}, model::LogitsFor::Last});
  const bool greedy = std::ranges::all_of(seats, [](const Seat* seat) { return seat->writer->greedy(); });
  std::vector<model::Token> best;
  std::span<const float> logits;
  const bool done = compute(seats, [&] {
    if (greedy) {
      best = runner_.forward_best_together(parts);
    } else {
      logits = runner_.forward_together(parts);
    }
  });
  if (!done) return;
  const size_t n_vocab = logits.size() / seats.size();
  for (size_t i = 0; i < seats.size(); ++i) {
    seats[i]->slot.appended({&seats[i]->next, 1});
    if (greedy) {
      step(*seats[i], best[i]);
    } else {
      step(*seats[i], logits.subspan(i * n_vocab, n_vocab));
    }
  }
  const double seconds = seconds_since(start);
  const auto n = static_cast<double>(seats.size());
  const std::lock_guard lock(shared_.mutex);
  Statistics& s = shared_.statistics;
  ++s.decode_passes;
  s.decode_seconds += seconds;
  const double weight = faded(1, seconds);
  s.decode_rate = s.decode_rate == 0 ? n / seconds : s.decode_rate * weight + (1 - weight) * n / seconds;
}

/// A pass that stops when nobody wants it any more. When it is stopped or fails, its requests end and their
/// slots go back to a place that is whole: false.
bool Worker::compute(std::span<Seat* const> seats, const std::function<void()>& pass) {
  runner_.set_stop(
      [&] { return std::ranges::all_of(seats, [&](const Seat* seat) { return seat->cancelled(shared_); }); });
  std::optional<std::string> failure;
  try {
    pass();
    runner_.set_stop({});
    return true;
  } catch (const model::Stopped&) {
  } catch (const std::exception& e) {
    failure = e.what();
  }
  runner_.set_stop({});
  for (Seat* seat : seats) {
    std::optional<std::string> lost = failure;
    try {
      seat->slot.recover();
    } catch (const std::exception& e) {
      seat->slot.forget();
      if (!lost) lost = e.what();
    }
    if (lost) {
      end(*seat, Failed{*lost});
    } else {
      finish(*seat, {FinishReason::Cancelled, {}, {}});
    }
  }
  return false;
}

/// What follows from the logits of the last token, or from the best token where that is enough.
template <typename Result>
void Worker::step(Seat& seat, const Result& result) {
  if (seat.reading) {
    seat.reading = false;
    seat.turn = seat.slot.last_mark();
    seat.usage.prefill_seconds = seconds_since(seat.phase_start);
    seat.phase_start = Clock::now();
    seat.job->send(ReadingProgress{seat.prompt_size(), seat.prompt_size(), seat.usage.cached_tokens});
  }
  AnswerWriter::Step step;
  try {
    step = seat.writer->step(result);
  } catch (const std::exception& e) {
    return end(seat, Failed{e.what()});
  }
  if (!step.piece.tokens.empty()) {
    const std::lock_guard lock(shared_.mutex);
    shared_.statistics.answer_tokens += step.piece.tokens.size();
  }
  if (!step.piece.tokens.empty() || !step.piece.text.empty()) seat.job->send(std::move(step.piece));
  if (step.end) {
    finish(seat, std::move(*step.end));
  } else {
    seat.next = *step.next;
  }
}

void Worker::finish(Seat& seat, Finished end) {
  end.usage = seat.usage;
  if (seat.reading) {
    end.usage.prefill_seconds = seconds_since(seat.phase_start);
  } else {
    end.usage.decode_seconds = seconds_since(seat.phase_start);
  }
  end.usage.answer_tokens = seat.writer ? seat.writer->tokens() : 0;
  this->end(seat, std::move(end));
}

void Worker::end(Seat& seat, Event event) {
  // Where a next turn goes on.
  if (seat.slot.position() - seat.slot.last_mark() >= kWorthMarking) mark(seat, {});
  if (seat.reading) seat.turn = seat.slot.last_mark();
  seat.turn = std::min(seat.turn, seat.slot.last_mark());
  const std::shared_ptr<Answer::Job> job = std::move(seat.job);
  seat.job = nullptr;
  seat.writer.reset();
  seat.places.clear();
  seat.rested = Clock::now();
  {
    const std::lock_guard lock(shared_.mutex);
    Statistics& s = shared_.statistics;
    const auto* finished = std::get_if<Finished>(&event);
    ++(finished == nullptr                           ? s.failed
       : finished->reason == FinishReason::Cancelled ? s.cancelled
                                                     : s.finished);
    --s.active;
    const double seconds = seconds_since(job->submitted) - seat.usage.queue_seconds;
    shared_.request_seconds += 0.2 * (seconds - shared_.request_seconds);
  }
  job->send(std::move(event));
  shared_.ended.notify_all();
}

bool Worker::worth_keeping(const Seat& seat) const {
  return seat.slot.copyable() && seat.slot.last_mark() > 0 && !seat.job && !seat.saved;
}

/// Before a seat at rest is given to another conversation.
void Worker::keep(Seat& seat) {
  if (!seat.slot.copyable() || seat.slot.last_mark() == 0) return;
  if (seat.slot.copy_bytes() > states_.budget() && (seat.saved || !states_.on_disk())) return;
  states_.set_other_bytes(marks_in_slots() - seat.slot.mark_bytes());
  try {
    states_.keep(seat.slot.copy(), seat.saved);
  } catch (const std::bad_alloc&) {
    // There is no memory for what would only save time.
  }
}

/// Writes what has been at rest for a while, or all, to the folder.
void Worker::save_rested(bool all) {
  if (!states_.on_disk()) return;
  for (const auto& seat : seats_) {
    if (!worth_keeping(*seat) || (!all && Clock::now() - seat->rested < options_.save_after)) continue;
    try {
      seat->saved = states_.save(seat->slot.copy(), all);
    } catch (const std::exception&) {
      seat->saved = true;  // no memory or no device for it: what would only save time is not tried again
    }
  }
  if (!all) states_.save_kept(Clock::now() - options_.save_after);
}

/// Marks the present place if the memory for it is there.
void Worker::mark(Seat& seat, std::span<const float> logits) {
  if (!make_room(seat.slot.next_mark_bytes() + logits.size_bytes())) return;
  try {
    seat.slot.add_mark(logits);
  } catch (const std::exception&) {
    // As above; what a device that failed has to say is told by the next pass.
  }
}

/// Lets go of kept states, then of marks, until all and `more` fit into the budget.
bool Worker::make_room(uint64_t more) {
  states_.set_other_bytes(marks_in_slots());
  if (states_.make_room(more)) return true;
  for (const auto& seat : seats_) seat->slot.thin();
  states_.set_other_bytes(marks_in_slots());
  return states_.make_room(more);
}

uint64_t Worker::marks_in_slots() const {
  uint64_t sum = 0;
  for (const auto& seat : seats_) sum += seat->slot.mark_bytes();
  return sum;
}

void Worker::publish(bool idle) {
  const auto now = Clock::now();
  if (!idle && now - published_ < std::chrono::milliseconds(100)) return;
  published_ = now;
  bool with_experts = idle;
  {
    const std::lock_guard lock(shared_.mutex);
    with_experts |= now - shared_.experts_wanted < std::chrono::seconds(5);
  }
  RunnerReport report;
  if (options_.report) options_.report(report, with_experts);
  const std::lock_guard lock(shared_.mutex);
  if (with_experts) shared_.experts = std::exchange(report.experts, {});
  shared_.statistics.runner = std::move(report);
  Statistics& s = shared_.statistics;
  s.states_in_memory = states_.size();
  s.state_bytes_in_memory = states_.bytes();
  s.state_bytes_in_memory += marks_in_slots();
  if (states_.folder() != nullptr) {
    s.states_on_disk = states_.folder()->size();
    s.state_bytes_on_disk = states_.folder()->bytes();
  }
}

}  // namespace redlite::session
