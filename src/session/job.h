#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "session/request.h"

namespace redlite::session {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Wakes the engine's thread. Outlives the engine for the answers that still point to it.
struct WakeUp {
  std::mutex mutex;
  std::condition_variable changed;
  bool raised = false;

  void raise() {
    {
      const std::lock_guard lock(mutex);
      raised = true;
    }
    changed.notify_one();
  }
};

/// A request with the events on their way to its consumer: what Engine and Answer share. Everything but
/// `request`, which is the engine's, is thread-safe.
struct Answer::Job {
  Job(Request r, std::shared_ptr<WakeUp> wake) : request(std::move(r)), wake_(std::move(wake)) {}

  Request request;
  const Clock::time_point submitted = Clock::now();

  /// Hands an event over; nothing may follow Finished or Failed.
  void send(Event event);

  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  friend class Answer;

  std::atomic<bool> cancelled_{false};
  std::shared_ptr<WakeUp> wake_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
  bool ended_ = false;  ///< the last event was sent
};

}  // namespace redlite::session
