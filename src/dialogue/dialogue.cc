#include "dialogue/dialogue.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "chat/answer_parser.h"

namespace redlite::dialogue {
namespace {

using model::Token;
using nlohmann::ordered_json;

/// A place is worth a mark, and a pass of its own, only if it saves reading more tokens than these again.
constexpr size_t kCloseBy = 4;

/// Does something at the end of a block, however that comes.
template <typename Action>
class Finally {
 public:
  explicit Finally(Action action) : action_(std::move(action)) {}
  ~Finally() { action_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  Action action_;
};

std::string valid_utf8(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  tokenizer::StreamDecoder decoder(tokenizer);
  std::string out = decoder.push_bytes(text);
  return out + decoder.finish();
}

bool is_last(const ordered_json& messages, std::string_view role) {
  return !messages.empty() && messages.back()["role"] == role;
}

}  // namespace

Dialogue::Dialogue(const model::Model& model, const tokenizer::Tokenizer& tokenizer, model::Runner& runner,
                   size_t max_marks)
    : model_(model),
      tokenizer_(tokenizer),
      renderer_(model.file()),
      runner_(runner),
      max_marks_(std::max<size_t>(max_marks, 2)),
      read_(tokenizer) {}

void Dialogue::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front()["role"] == "system") messages_.erase(0);
  if (text.empty()) return;
  ordered_json system = {{"role", "system"}, {"content", valid_utf8(tokenizer_, text)}};
  messages_.insert(messages_.begin(), std::move(system));
}

void Dialogue::clear() {
  ordered_json kept = ordered_json::array();
  if (!messages_.empty() && messages_.front()["role"] == "system") kept.push_back(messages_.front());
  messages_ = std::move(kept);
}

bool Dialogue::undo() {
  size_t user = messages_.size();
  while (user > 0 && messages_[user - 1]["role"] != "user") --user;
  if (user == 0) return false;
  while (messages_.size() >= user) messages_.erase(messages_.size() - 1);
  return true;
}

Answer Dialogue::say(const std::string& text, const AnswerOptions& options, const AnswerHooks& hooks) {
  const ordered_json before = messages_;
  messages_.push_back({{"role", "user"}, {"content", valid_utf8(tokenizer_, text)}});
  try {
    Answer result = answer(options, hooks);
    if (!is_last(messages_, "assistant")) messages_ = before;
    return result;
  } catch (...) {
    messages_ = before;
    throw;
  }
}

Answer Dialogue::answer_again(const AnswerOptions& options, const AnswerHooks& hooks) {
  const ordered_json before = messages_;
  while (is_last(messages_, "assistant")) messages_.erase(messages_.size() - 1);
  if (!is_last(messages_, "user")) {
    messages_ = before;
    fail("there is no message to answer yet");
  }
  try {
    Answer result = answer(options, hooks);
    if (!is_last(messages_, "assistant")) messages_ = before;
    return result;
  } catch (...) {
    messages_ = before;
    throw;
  }
}

chat::Prompt Dialogue::render(const ordered_json& messages, const ordered_json& extra,
                              bool add_generation_prompt) const {
  chat::Conversation conversation;
  conversation.messages = messages;
  conversation.extra = extra;
  conversation.add_generation_prompt = add_generation_prompt;
  return renderer_.render(conversation);
}

Reading Dialogue::encode(const chat::Prompt& prompt) const {
  return {tokenizer_, chat::encode(tokenizer_, prompt)};
}

void Dialogue::rewind_to_place(size_t n_places) {
  places_.resize(n_places);
  if (places_.empty()) {
    runner_.reset();
    read_.cut(0);
  } else {
    runner_.rewind(*places_.back().mark);
    read_.cut(places_.back().tokens);
  }
}

void Dialogue::add_place() {
  if (read_.size() == 0 || (!places_.empty() && places_.back().tokens == read_.size())) return;
  places_.push_back({read_.size(), runner_.mark()});
  // The first stays: it is behind the system message, where every new conversation begins.
  if (places_.size() > max_marks_) places_.erase(places_.begin() + 1);
}

size_t Dialogue::rewind_for(const Reading& prompt) {
  const size_t common = read_.common(prompt);
  // At least one token is left to read: its logits are wanted.
  const auto goes_on = [&](size_t tokens) -> std::optional<size_t> {
    const size_t bytes = read_.begin_of(tokens);
    if (bytes > common) return std::nullopt;
    const size_t at = prompt.tokens_in(bytes);
    return at < prompt.size() ? std::optional(at) : std::nullopt;
  };
  if (const auto at = goes_on(read_.size())) {
    add_place();
    return *at;
  }
  for (size_t n = places_.size(); n > 0; --n) {
    if (const auto at = goes_on(places_[n - 1].tokens)) {
      rewind_to_place(n);
      return *at;
    }
  }
  rewind_to_place(0);
  return 0;
}

void Dialogue::read(const Reading& prompt, size_t first, size_t last) {
  if (first >= last) return;
  const std::span<const Token> tokens = std::span(prompt.tokens()).subspan(first, last - first);
  runner_.forward(tokens, model::LogitsFor::None);
  for (const Token token : tokens) read_.push(token);
}

std::vector<size_t> Dialogue::stops(const Reading& prompt, const ordered_json& extra) const {
  ordered_json turns_before = messages_;
  turns_before.erase(turns_before.size() - 1);
  std::vector<size_t> out;
  for (const ordered_json* messages : {&std::as_const(turns_before), &messages_}) {
    size_t stop = 0;
    try {
      if (!messages->empty())
        stop = prompt.tokens_within(
            prompt.common(encode(render(*messages, extra, /*add_generation_prompt=*/false))));
    } catch (const Error&) {  // some templates take no conversation without a user's message
    }
    out.push_back(std::min(stop, prompt.size() - 1));
  }
  return out;
}

Answer Dialogue::answer(const AnswerOptions& options, const AnswerHooks& hooks) {
  const chat::Prompt rendered = render(messages_, options.extra, /*add_generation_prompt=*/true);
  const Reading prompt = encode(rendered);
  if (prompt.size() == 0) fail("{}: its chat template makes nothing of this conversation", model_.path());
  size_t at = rewind_for(prompt);
  Answer answer;
  answer.kept_tokens = static_cast<int>(read_.size());
  const size_t n_new = prompt.size() - at;
  const auto capacity = static_cast<size_t>(runner_.capacity());
  if (read_.size() + n_new >= capacity)
    throw ContextFull(
        fmt::format("the conversation has {} tokens, which leaves no room for an answer in a context of {}",
                    read_.size() + n_new, capacity));
  const size_t room = capacity - read_.size() - n_new;

  const size_t first = at;
  bool reading = true;
  runner_.set_progress([&](double done) {
    if (hooks.read) hooks.read(static_cast<double>(at - first) + done);
  });
  // A token that is being computed is waited for: the answer stays as far as it came.
  runner_.set_stop(
      [&] { return reading && options.cancel && options.cancel->load(std::memory_order_relaxed); });
  const Finally no_hooks([&] {
    runner_.set_progress({});
    runner_.set_stop({});
  });

  chat::Answer said;
  chat::AnswerParser parser(chat::ToolFormat::None, renderer_.reasoning_after(rendered), nullptr);
  chat::AnswerDecoder decoder(tokenizer_);
  const auto pass_on = [&](const std::vector<chat::Delta>& deltas) {
    for (const chat::Delta& delta : deltas) {
      said.add(delta);
      const bool thought = delta.kind == chat::Delta::Kind::Reasoning;
      if (hooks.text) hooks.text(thought ? Part::Reasoning : Part::Answer, delta.text);
    }
  };
  engine::GenerateOptions generate;
  generate.max_tokens = static_cast<int>(std::min(static_cast<size_t>(options.max_tokens), room));
  generate.sampler = options.sampler;
  generate.cancel = options.cancel;
  if (hooks.reading) hooks.reading(n_new);
  const auto start = std::chrono::steady_clock::now();
  double seconds_before = 0;
  try {
    for (const size_t stop : stops(prompt, options.extra)) {
      if (stop <= at + kCloseBy && at > 0) continue;
      read(prompt, at, stop);
      at = stop;
      add_place();
    }
    const std::span<const Token> rest = std::span(prompt.tokens()).subspan(at);
    generate.history = read_.tokens();
    seconds_before = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    answer.result = engine::generate_tokens(runner_, tokenizer_, rest, generate, [&](Token token) {
      reading = false;
      pass_on(parser.push(decoder.push(token)));
    });
    pass_on(parser.push(decoder.finish()));
    pass_on(parser.finish(answer.result.reason != engine::StopReason::EndToken));
  } catch (const model::Stopped&) {
    rewind_to_place(places_.size());
    answer.result.reason = engine::StopReason::Cancelled;
    return answer;
  } catch (...) {
    rewind_to_place(places_.size());
    throw;
  }
  for (const Token token : std::span(prompt.tokens()).subspan(at)) read_.push(token);
  const auto written =
      std::span(answer.result.tokens).first(static_cast<size_t>(answer.result.decode_tokens));
  for (const Token token : written) read_.push(token);
  RL_CHECK(read_.size() == static_cast<size_t>(runner_.position()), "{} tokens, position {}", read_.size(),
           runner_.position());
  answer.result.prompt_tokens = static_cast<int>(n_new);
  answer.result.prefill_seconds += seconds_before;
  answer.context_full =
      answer.result.reason == engine::StopReason::MaxTokens && generate.max_tokens < options.max_tokens;
  if (answer.result.tokens.empty() && answer.result.reason == engine::StopReason::Cancelled) return answer;
  ordered_json message = {{"role", "assistant"}, {"content", said.text}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  messages_.push_back(std::move(message));
  return answer;
}

}  // namespace redlite::dialogue
