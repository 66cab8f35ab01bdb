#include "server/answer_delivery.h"

namespace redlite::server {

AnswerDelivery::AnswerDelivery(const Task& task, chat::ToolFormat format, chat::Reasoning reasoning,
                               const tokenizer::Tokenizer& tokenizer, AnswerSink& sink)
    : task_(task), tokenizer_(tokenizer), sink_(sink) {
  if (const chat::Conversation* conversation = task.conversation())
    parser_.emplace(format, reasoning, conversation->tools, /*text_or_calls=*/task.format != TextFormat::Any);
}

void AnswerDelivery::piece(const session::Piece& piece) {
  undecided_.insert(undecided_.end(), piece.tokens.begin(), piece.tokens.end());
  if (parser_) {
    deliver(parser_->push(piece.text));
  } else if (!piece.text.empty()) {
    text(piece.text);
  }
}

void AnswerDelivery::finished(const session::Finished& end) {
  const bool cut_off = end.reason == session::FinishReason::Length;
  if (parser_) deliver(parser_->finish(cut_off));
  Outcome outcome;
  outcome.usage = end.usage;
  outcome.reasoning_tokens = reasoning_tokens_;
  if (cut_off) {
    outcome.finish = Finish::Length;
  } else if (calls_ > 0) {
    outcome.finish = Finish::ToolCalls;
  } else if (end.reason == session::FinishReason::Stop) {
    outcome.finish = Finish::StopString;
    outcome.stop = end.stop;
  }
  sink_.finished(outcome);
}

void AnswerDelivery::deliver(const std::vector<chat::Delta>& deltas) {
  for (const chat::Delta& delta : deltas) {
    switch (delta.kind) {
      case chat::Delta::Kind::Reasoning:
        reasoning_tokens_ += static_cast<int>(undecided_.size());
        undecided_.clear();
        sink_.reasoning(delta.text);
        break;
      case chat::Delta::Kind::Text:
        text(delta.text);
        break;
      case chat::Delta::Kind::Call:
        undecided_.clear();
        sink_.tool_call(calls_++, delta.text);
        break;
      case chat::Delta::Kind::Arguments:
        undecided_.clear();
        sink_.tool_arguments(calls_ - 1, delta.text);
        break;
    }
  }
}

void AnswerDelivery::text(const std::string& text) {
  if (task_.top_logprobs >= 0 && !undecided_.empty()) {
    std::vector<TokenLogprob> logprobs;
    for (const session::AnswerToken& token : undecided_) logprobs.push_back(logprob(token));
    sink_.logprobs(logprobs);
  }
  undecided_.clear();
  sink_.content(text);
}

TokenLogprob AnswerDelivery::logprob(const session::AnswerToken& token) const {
  TokenLogprob told;
  told.piece = tokenizer_.piece(token.token, /*special=*/true);
  told.logprob = token.logprob;
  for (const auto& [id, logprob] : token.top) told.top.emplace_back(tokenizer_.piece(id, true), logprob);
  return told;
}

}  // namespace redlite::server
