#pragma once

#include <optional>
#include <vector>

#include "chat/answer_parser.h"
#include "server/answer.h"
#include "server/task.h"
#include "tokenizer/tokenizer.h"

namespace redlite::server {

/// Takes the pieces of an answer apart, for a sink.
class AnswerDelivery {
 public:
  /// What it is given must outlive it.
  AnswerDelivery(const Task& task, chat::ToolFormat format, chat::Reasoning reasoning,
                 const tokenizer::Tokenizer& tokenizer, AnswerSink& sink);

  void piece(const session::Piece& piece);
  void finished(const session::Finished& end);

 private:
  void deliver(const std::vector<chat::Delta>& deltas);
  void text(const std::string& text);
  TokenLogprob logprob(const session::AnswerToken& token) const;

  const Task& task_;
  const tokenizer::Tokenizer& tokenizer_;
  AnswerSink& sink_;
  std::optional<chat::AnswerParser> parser_;     ///< none: all is text
  std::vector<session::AnswerToken> undecided_;  ///< tokens that nothing was made of yet
  int calls_ = 0;
  int reasoning_tokens_ = 0;
};

}  // namespace redlite::server
