#include <algorithm>
#include <iterator>

#include "session/job.h"

namespace redlite::session {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::End:
      return "end";
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Cancelled:
      return "cancelled";
  }
  RL_CHECK(false, "reason {}", static_cast<int>(reason));
  return {};
}

void Answer::Job::send(Event event) {
  {
    const std::lock_guard lock(mutex_);
    RL_CHECK(!ended_);
    ended_ = std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event);
    // Of the progress only the latest is worth reading.
    if (std::holds_alternative<ReadingProgress>(event) && !events_.empty() &&
        std::holds_alternative<ReadingProgress>(events_.back())) {
      events_.back() = std::move(event);
    } else {
      events_.push_back(std::move(event));
    }
  }
  arrived_.notify_all();
}

Answer::Answer(std::shared_ptr<Job> job) : job_(std::move(job)) {}

Answer::~Answer() {
  cancel();
}

std::optional<Event> Answer::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(job_->mutex_);
  job_->arrived_.wait_for(lock, timeout, [&] { return !job_->events_.empty() || job_->ended_; });
  if (job_->events_.empty()) return std::nullopt;
  Event event = std::move(job_->events_.front());
  job_->events_.pop_front();
  return event;
}

WholeAnswer Answer::wait() {
  WholeAnswer whole;
  while (std::optional<Event> event = next()) {
    if (auto* piece = std::get_if<Piece>(&*event)) {
      whole.text += piece->text;
      std::ranges::move(piece->tokens, std::back_inserter(whole.tokens));
    } else if (auto* finished = std::get_if<Finished>(&*event)) {
      whole.end = std::move(*finished);
      return whole;
    } else if (auto* failed = std::get_if<Failed>(&*event)) {
      throw Error(failed->message);
    }
  }
  RL_CHECK(false, "the end of the answer was taken before");
  return whole;
}

void Answer::cancel() {
  if (!job_->cancelled_.exchange(true)) job_->wake_->raise();
}

bool Answer::done() const {
  const std::lock_guard lock(job_->mutex_);
  return job_->ended_ && job_->events_.empty();
}

}  // namespace redlite::session
