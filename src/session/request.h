#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "engine/sampler.h"
#include "engine/token_filter.h"
#include "model/runner.h"

namespace redlite::session {

/// What an Engine is asked for: an answer to a prompt.
struct Request {
  std::vector<model::Token> prompt;  ///< at least one token
  /// Offsets into the prompt, rising, where a later prompt may go on differently: behind the system message
  /// and the tools, behind each message, before the words that open the answer. The state there is kept, so
  /// that such a prompt need not be read from its beginning.
  std::vector<int> boundaries;

  engine::SamplerOptions sampler;
  int max_tokens = 0;                           ///< most tokens of the answer; 0: until the context is full
  bool ignore_end = false;                      ///< go on past end-of-text tokens
  bool special = false;                         ///< control tokens appear in the text
  std::vector<std::string> stop;                ///< the answer ends before the first of these; none is empty
  int top_logprobs = -1;                        ///< -1: none; n: of each token's own and of the n likeliest
  std::shared_ptr<engine::TokenFilter> filter;  ///< may be empty; used by no other request meanwhile

  /// Who asks, such as an API key or an address: clients take turns, whatever each of them asks for.
  std::string client;
};

/// A token of the answer. Logprobs are of the model's own distribution, before filter and sampler.
struct AnswerToken {
  model::Token token = -1;
  float logprob = 0;                                ///< where they were asked for
  std::vector<std::pair<model::Token, float>> top;  ///< the likeliest first
};

/// How far the prompt is read. Sent as it proceeds, at first when the request has left the queue.
struct ReadingProgress {
  int done = 0;    ///< tokens, those `cached` among them
  int total = 0;   ///< tokens of the prompt
  int cached = 0;  ///< tokens that were not read, because the state behind them was kept
};

/// More of the answer: one token's worth or more. The text is valid UTF-8; it lags behind the tokens while a
/// character is unfinished or what was said might be the beginning of a stop string.
struct Piece {
  std::string text;
  std::vector<AnswerToken> tokens;
};

enum class FinishReason : uint8_t {
  End,        ///< the model ended it
  Stop,       ///< a stop string came
  Length,     ///< max_tokens, or the context was full
  Cancelled,  ///< by cancel(), or the engine shut down
};
std::string_view finish_reason_name(FinishReason reason);  ///< "end", "stop", "length", "cancelled"

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  ///< of the prompt, those not read
  int answer_tokens = 0;  ///< generated, without an end token
  double queue_seconds = 0;
  double prefill_seconds = 0;  ///< from leaving the queue to the logits of the prompt's last token
  double decode_seconds = 0;   ///< from there to the end
};

/// The last event of an answer that came to an end.
struct Finished {
  FinishReason reason = FinishReason::End;
  std::string stop;  ///< which stop string it was
  Usage usage;
};

/// The last event of one that could not: one line that says why (an expert could not be read, ...).
struct Failed {
  std::string message;
};

using Event = std::variant<ReadingProgress, Piece, Finished, Failed>;

/// A whole answer, for those who do not want it in pieces.
struct WholeAnswer {
  std::string text;
  std::vector<AnswerToken> tokens;
  Finished end;
};

/// The consumer's end of an answer on its way. Events wait here until they are taken, however slow the
/// consumer is; it holds up nobody, and their number is bounded by max_tokens. Thread-safe. Without a
/// consumer there is no answer: the destructor cancels.
class Answer {
 public:
  struct Job;
  explicit Answer(std::shared_ptr<Job> job);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// Takes the next event; waits for it. nullopt: none came within `timeout`, or the last was taken already.
  std::optional<Event> next(std::chrono::milliseconds timeout = kForever);
  /// All of it, at its end. Throws Error with the message of Failed.
  WholeAnswer wait();

  /// Stops the computation at once; Finished (Cancelled) follows unless the end was there before.
  void cancel();
  /// Whether the last event was taken.
  bool done() const;

  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

 private:
  std::shared_ptr<Job> job_;
};

/// The queue is full. Try again after some time.
class QueueFull : public Error {
 public:
  QueueFull(const std::string& message, int retry_after) : Error(message), retry_after_(retry_after) {}
  int retry_after_seconds() const { return retry_after_; }  ///< about when there will be room; at least 1

 private:
  int retry_after_;
};

/// The engine is shutting down and takes no more requests.
class ShuttingDown : public Error {
 public:
  using Error::Error;
};

}  // namespace redlite::session
