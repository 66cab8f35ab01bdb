#include "server/answerer.h"

#include <variant>

#include "server/answer_delivery.h"

namespace redlite::server {
namespace {

/// How long the engine is waited for before looking whether the client is still there.
constexpr std::chrono::milliseconds kMoment{50};

bool is_control(const tokenizer::Tokenizer& tokenizer, model::Token token) {
  return tokenizer.piece(token).empty() && !tokenizer.piece(token, /*special=*/true).empty();
}

}  // namespace

Answerer::Answerer(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine,
                   std::shared_ptr<const chat::Renderer> renderer)
    : model_path_(model.path()),
      tokenizer_(tokenizer),
      engine_(engine),
      constraints_(tokenizer),
      renderer_(std::move(renderer)) {
  if (!renderer_) {
    try {
      renderer_ = std::make_shared<chat::Renderer>(model.file());
    } catch (const Error& e) {
      no_renderer_ = public_message(e.what());
    }
  }
  opens_.resize(static_cast<size_t>(tokenizer.size()));
  for (model::Token token = 0; token < tokenizer.size(); ++token)
    opens_[static_cast<size_t>(token)] = is_control(tokenizer, token) && !tokenizer.is_end(token);
  for (const std::string_view tag : {chat::kThinkEnd, chat::kToolCallBegin}) {
    const model::Token token = tokenizer.find(tag);
    if (token < 0 || !opens_[static_cast<size_t>(token)]) continue;
    tags_are_control_ = true;
    opens_[static_cast<size_t>(token)] = false;
  }
}

Answerer::~Answerer() = default;

RenderedPrompt Answerer::render(const Task& task) const {
  RenderedPrompt out;
  if (const auto* tokens = std::get_if<std::vector<model::Token>>(&task.prompt)) {
    out.tokens = *tokens;
    return out;
  }
  if (const auto* text = std::get_if<std::string>(&task.prompt)) {
    out.tokens = tokenizer_.encode(*text, /*parse_special=*/true);
    if (tokenizer_.bos() >= 0 && (out.tokens.empty() || out.tokens[0] != tokenizer_.bos()))
      out.tokens.insert(out.tokens.begin(), tokenizer_.bos());
    return out;
  }
  if (!renderer_) throw ApiError(400, no_renderer_);
  try {
    const chat::Prompt prompt = renderer_->render(*task.conversation());
    out.tokens = chat::encode(tokenizer_, prompt);
    out.reasoning = renderer_->reasoning_after(prompt);
  } catch (const Error& e) {
    throw ApiError(400, public_message(e.what()), "messages");
  }
  out.boundaries = boundaries(out.tokens);
  return out;
}

/// Where the model lies is nothing that clients need to know.
std::string Answerer::public_message(std::string message) const {
  const std::string folder = model_path_.substr(0, model_path_.rfind('/') + 1);
  if (folder.empty()) return message;
  for (size_t at = 0; (at = message.find(folder, at)) != std::string::npos;) message.erase(at, folder.size());
  return message;
}

/// Messages begin with a control token, or several.
std::vector<int> Answerer::boundaries(const std::vector<model::Token>& tokens) const {
  std::vector<int> out;
  const auto opens = [&](size_t i) { return opens_[static_cast<size_t>(tokens[i])]; };
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (opens(i) && !opens(i - 1)) out.push_back(static_cast<int>(i));
  }
  return out;
}

std::shared_ptr<session::Answer> Answerer::submit(const Task& task, const RenderedPrompt& prompt,
                                                  const std::string& client) const {
  const int capacity = engine_.capacity();
  if (prompt.tokens.size() >= static_cast<size_t>(capacity)) {
    throw ApiError::too_long(fmt::format(
        "prompt is too long: {} tokens > {} maximum, the context that this server keeps (--context)",
        prompt.tokens.size(), capacity - 1));
  }
  session::Request request;
  request.prompt = prompt.tokens;
  request.boundaries = prompt.boundaries;
  request.sampler = task.sampler;
  request.max_tokens = task.max_tokens;
  request.ignore_end = task.ignore_end;
  request.special = tags_are_control_ && task.conversation() != nullptr;
  request.stop = task.stop;
  request.top_logprobs = task.top_logprobs;
  request.filter = constraints_.filter(task, format().tools, prompt.reasoning);
  request.client = client;
  try {
    return engine_.submit(std::move(request));
  } catch (const session::QueueFull& e) {
    throw ApiError::try_again(429, e.what(), e.retry_after_seconds());
  } catch (const session::ShuttingDown& e) {
    throw ApiError::try_again(503, e.what(), 5);
  } catch (const Error& e) {
    throw ApiError(400, public_message(e.what()));
  }
}

void Answerer::deliver(const Task& task, const RenderedPrompt& prompt, session::Answer& answer,
                       AnswerSink& sink, const std::function<void()>& look) const {
  AnswerDelivery delivery(task, format().tools, prompt.reasoning, tokenizer_, sink);
  auto looked = std::chrono::steady_clock::now();
  while (true) {
    const std::optional<session::Event> event = answer.next(kMoment);
    if (const auto now = std::chrono::steady_clock::now(); !event || now - looked >= kMoment) {
      looked = now;
      look();
    }
    if (!event) continue;
    if (const auto* piece = std::get_if<session::Piece>(&*event)) {
      delivery.piece(*piece);
    } else if (const auto* progress = std::get_if<session::ReadingProgress>(&*event)) {
      sink.reading(*progress);
    } else if (const auto* end = std::get_if<session::Finished>(&*event)) {
      if (end->reason == session::FinishReason::Cancelled)
        throw ApiError::try_again(503, "the server is shutting down", 5);
      delivery.finished(*end);
      return;
    } else if (const auto* failed = std::get_if<session::Failed>(&*event)) {
      throw ApiError(500, public_message(failed->message));
    }
  }
}

}  // namespace redlite::server
