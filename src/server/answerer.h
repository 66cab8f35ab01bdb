#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chat/answer_format.h"
#include "chat/chat.h"
#include "model/model.h"
#include "server/answer.h"
#include "server/constraint.h"
#include "server/task.h"
#include "session/engine.h"
#include "tokenizer/tokenizer.h"

namespace redlite::server {

/// A task's prompt, as the model gets it.
struct RenderedPrompt {
  std::vector<model::Token> tokens;
  std::vector<int> boundaries;  ///< see session::Request
  chat::Reasoning reasoning = chat::Reasoning::None;
};

/// Between tasks and the engine: renders prompts, and turns what the model writes into reasoning, text and
/// calls. Thread-safe. What it is given must outlive it.
class Answerer {
 public:
  /// `renderer`: with another chat template than the model's; none: with that.
  Answerer(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine,
           std::shared_ptr<const chat::Renderer> renderer);
  ~Answerer();

  /// Throws ApiError for a conversation that the model's template does not take.
  RenderedPrompt render(const Task& task) const;

  /// Asks the engine. Throws ApiError: 400 for a prompt that is too long, and for a schema that cannot be
  /// kept to; 429 when the queue is full; 503 when the server is shutting down.
  std::shared_ptr<session::Answer> submit(const Task& task, const RenderedPrompt& prompt,
                                          const std::string& client) const;

  /// Passes an answer on, until its end. `look` is called every moment; what it throws ends the answer.
  /// Throws ApiError when the answer failed or the server shuts down.
  void deliver(const Task& task, const RenderedPrompt& prompt, session::Answer& answer, AnswerSink& sink,
               const std::function<void()>& look) const;

  bool can_chat() const { return renderer_ != nullptr; }
  chat::AnswerFormat format() const { return renderer_ ? renderer_->answer_format() : chat::AnswerFormat{}; }

 private:
  std::vector<int> boundaries(const std::vector<model::Token>& tokens) const;

  std::string public_message(std::string message) const;

  const std::string model_path_;
  const tokenizer::Tokenizer& tokenizer_;
  session::Engine& engine_;
  const Constraints constraints_;
  std::shared_ptr<const chat::Renderer> renderer_;
  std::string no_renderer_;        ///< why there is none
  std::vector<bool> opens_;        ///< [n_vocab]: control tokens that do not end an answer
  bool tags_are_control_ = false;  ///< <think> and its like are control tokens in this vocabulary
};

}  // namespace redlite::server
