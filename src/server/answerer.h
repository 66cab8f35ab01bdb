#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chat/chat.h"
#include "model/model.h"
#include "server/answer.h"
#include "server/task.h"
#include "session/engine.h"
#include "tokenizer/tokenizer.h"

namespace redlite::server {

/// Between tasks and the engine: renders prompts, and turns what the model writes into reasoning, text and
/// calls. Thread-safe. What it is given must outlive it.
class Answerer {
 public:
  Answerer(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine);

  /// The prompt's tokens. Throws ApiError for a conversation that the model's template does not take.
  std::vector<model::Token> prompt(const Task& task) const;

  /// Asks the engine. Throws ApiError: 400 for a prompt that is too long, 429 when the queue is full, 503
  /// when the server is shutting down.
  std::shared_ptr<session::Answer> submit(const Task& task, std::vector<model::Token> prompt,
                                          const std::string& client) const;

  /// Passes an answer on, until its end. `look` is called every moment; what it throws ends the answer.
  /// Throws ApiError when the answer failed or the server shuts down.
  void deliver(const Task& task, session::Answer& answer, AnswerSink& sink,
               const std::function<void()>& look) const;

  bool can_chat() const { return renderer_.has_value(); }

 private:
  std::vector<TokenLogprob> logprobs(const std::vector<session::AnswerToken>& tokens) const;

  const tokenizer::Tokenizer& tokenizer_;
  session::Engine& engine_;
  std::optional<chat::Renderer> renderer_;
  std::string no_renderer_;  ///< why there is none
};

}  // namespace redlite::server
