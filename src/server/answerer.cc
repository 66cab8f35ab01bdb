#include "server/answerer.h"

#include <variant>

namespace redlite::server {
namespace {

/// How long the engine is waited for before looking whether the client is still there.
constexpr std::chrono::milliseconds kMoment{50};

Finish finish_of(session::FinishReason reason) {
  switch (reason) {
    case session::FinishReason::Stop:
      return Finish::StopString;
    case session::FinishReason::Length:
      return Finish::Length;
    default:
      return Finish::End;
  }
}

}  // namespace

Answerer::Answerer(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine)
    : tokenizer_(tokenizer), engine_(engine) {
  try {
    renderer_.emplace(model.file());
  } catch (const Error& e) {
    no_renderer_ = e.what();
  }
}

std::vector<model::Token> Answerer::prompt(const Task& task) const {
  if (const auto* tokens = std::get_if<std::vector<model::Token>>(&task.prompt)) return *tokens;
  if (const auto* text = std::get_if<std::string>(&task.prompt)) {
    std::vector<model::Token> tokens = tokenizer_.encode(*text, /*parse_special=*/true);
    if (tokenizer_.bos() >= 0 && (tokens.empty() || tokens[0] != tokenizer_.bos()))
      tokens.insert(tokens.begin(), tokenizer_.bos());
    return tokens;
  }
  if (!renderer_) throw ApiError(400, no_renderer_);
  try {
    return chat::encode(tokenizer_, renderer_->render(*task.conversation()));
  } catch (const ApiError&) {
    throw;
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "messages");
  }
}

std::shared_ptr<session::Answer> Answerer::submit(const Task& task, std::vector<model::Token> prompt,
                                                  const std::string& client) const {
  const int capacity = engine_.capacity();
  if (prompt.size() >= static_cast<size_t>(capacity)) {
    throw ApiError::too_long(
        fmt::format("prompt is too long: {} tokens > {} maximum, the context that this "
                    "server keeps (--context)",
                    prompt.size(), capacity - 1));
  }
  session::Request request;
  request.prompt = std::move(prompt);
  request.sampler = task.sampler;
  request.max_tokens = task.max_tokens;
  request.ignore_end = task.ignore_end;
  request.stop = task.stop;
  request.top_logprobs = task.top_logprobs;
  request.client = client;
  try {
    return engine_.submit(std::move(request));
  } catch (const session::QueueFull& e) {
    throw ApiError::try_again(429, e.what(), e.retry_after_seconds());
  } catch (const session::ShuttingDown& e) {
    throw ApiError::try_again(503, e.what(), 5);
  } catch (const Error& e) {
    throw ApiError(400, e.what());
  }
}

std::vector<TokenLogprob> Answerer::logprobs(const std::vector<session::AnswerToken>& tokens) const {
  std::vector<TokenLogprob> out;
  out.reserve(tokens.size());
  for (const session::AnswerToken& token : tokens) {
    TokenLogprob& told = out.emplace_back();
    told.piece = tokenizer_.piece(token.token, /*special=*/true);
    told.logprob = token.logprob;
    for (const auto& [id, logprob] : token.top) told.top.emplace_back(tokenizer_.piece(id, true), logprob);
  }
  return out;
}

void Answerer::deliver(const Task& task, session::Answer& answer, AnswerSink& sink,
                       const std::function<void()>& look) const {
  auto looked = std::chrono::steady_clock::now();
  while (true) {
    const std::optional<session::Event> event = answer.next(kMoment);
    if (const auto now = std::chrono::steady_clock::now(); !event || now - looked >= kMoment) {
      looked = now;
      look();
    }
    if (!event) continue;
    if (const auto* piece = std::get_if<session::Piece>(&*event)) {
      if (task.top_logprobs >= 0) sink.logprobs(logprobs(piece->tokens));
      if (!piece->text.empty()) sink.content(piece->text);
    } else if (const auto* progress = std::get_if<session::ReadingProgress>(&*event)) {
      sink.reading(*progress);
    } else if (const auto* end = std::get_if<session::Finished>(&*event)) {
      if (end->reason == session::FinishReason::Cancelled)
        throw ApiError::try_again(503, "the server is shutting down", 5);
      Outcome outcome;
      outcome.finish = finish_of(end->reason);
      outcome.stop = end->stop;
      outcome.usage = end->usage;
      sink.finished(outcome);
      return;
    } else if (const auto* failed = std::get_if<session::Failed>(&*event)) {
      throw ApiError(500, failed->message);
    }
  }
}

}  // namespace redlite::server
