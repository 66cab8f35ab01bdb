#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "session/request.h"

namespace redlite::server {

/// A token of an answer with its probability. Pieces are bytes, not always whole characters.
struct TokenLogprob {
  std::string piece;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;  ///< the likeliest first
};

enum class Finish : uint8_t { End, StopString, Length, ToolCalls };

struct Outcome {
  Finish finish = Finish::End;
  std::string stop;  ///< which stop string it was
  session::Usage usage;
  int reasoning_tokens = 0;  ///< of usage.answer_tokens
};

/// Receives an answer part by part: reasoning, text and tool calls in the order in which they come. Texts are
/// valid UTF-8 and not empty.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void reasoning(std::string_view text) = 0;
  virtual void content(std::string_view text) = 0;
  /// The tokens of content; before the content they belong to, and only where they were asked for.
  virtual void logprobs(std::span<const TokenLogprob> tokens) = 0;
  /// A call begins; calls are numbered from 0, and one ends where the next begins.
  virtual void tool_call(int index, std::string_view name) = 0;
  /// More of its arguments, which together are a JSON object (unless the model wrote something else).
  virtual void tool_arguments(int index, std::string_view json) = 0;
  virtual void finished(const Outcome& outcome) = 0;
  /// So much of the prompt is read; before everything else.
  virtual void reading(const session::ReadingProgress& /*progress*/) {}
};

struct ToolCall {
  std::string name, arguments;
};

/// A whole answer.
class WholeAnswer final : public AnswerSink {
 public:
  void reasoning(std::string_view text) override { reasoning_ += text; }
  void content(std::string_view text) override { content_ += text; }
  void logprobs(std::span<const TokenLogprob> tokens) override {
    logprobs_.insert(logprobs_.end(), tokens.begin(), tokens.end());
  }
  void tool_call(int /*index*/, std::string_view name) override { calls_.push_back({std::string(name), ""}); }
  void tool_arguments(int /*index*/, std::string_view json) override { calls_.back().arguments += json; }
  void finished(const Outcome& outcome) override { outcome_ = outcome; }

  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  const std::vector<TokenLogprob>& logprobs() const { return logprobs_; }
  const std::vector<ToolCall>& calls() const { return calls_; }
  const Outcome& outcome() const { return outcome_; }

 private:
  std::string reasoning_, content_;
  std::vector<TokenLogprob> logprobs_;
  std::vector<ToolCall> calls_;
  Outcome outcome_;
};

/// Writes an answer as an API's stream of server-sent events.
class AnswerStream : public AnswerSink {
 public:
  virtual void started(int prompt_tokens) = 0;
  virtual void keep_alive() = 0;  ///< nothing came for a while
  virtual void failed(const ApiError& error) = 0;
};

/// Takes bytes of a stream to the client.
using Emit = std::function<void(std::string_view)>;

/// What a response says about itself.
struct Identity {
  std::string model;
  std::time_t created = 0;
  std::function<std::string()> random_id;  ///< 24 letters and digits, others each time
};

}  // namespace redlite::server
