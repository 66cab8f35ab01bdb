// POST /v1/completions.

#include <algorithm>
#include <array>

#include "server/api.h"
#include "server/openai_fields.h"

namespace redlite::server {
namespace completions_api {
namespace {

std::vector<model::Token> read_tokens(const Node& node) {
  std::vector<model::Token> tokens;
  tokens.reserve(node.json().size());
  for (const Json& id : node.json()) {
    if (!id.is_number_integer() || id < 0 || id > (1 << 30)) node.refuse("has something that is no token id");
    tokens.push_back(id.get<model::Token>());
  }
  return tokens;
}

void read_prompt(const Node& prompt, Task& task) {
  if (prompt.is_string()) {
    task.prompt = prompt.string();
    return;
  }
  if (!prompt.is_array()) prompt.refuse("must be a string or an array of token ids");
  const Json& list = prompt.json();
  if (!list.empty() && list[0].is_number()) {
    task.prompt = read_tokens(prompt);
  } else if (list.size() == 1) {
    read_prompt(prompt.array()[0], task);
  } else {
    prompt.refuse("must be one prompt");
  }
}

Json usage_json(const Outcome& outcome) {
  const session::Usage& usage = outcome.usage;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.answer_tokens},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

/// `offset`: bytes of text before these tokens; moved on.
Json logprobs_json(std::span<const TokenLogprob> tokens, size_t& offset) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const TokenLogprob& token : tokens) {
    out["tokens"].push_back(token.piece);
    out["token_logprobs"].push_back(token.logprob);
    Json top = Json::object();
    for (const auto& [piece, logprob] : token.top) top[piece] = logprob;
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += token.piece.size();
  }
  return out;
}

std::string_view finish_reason(Finish finish) {
  return finish == Finish::Length ? "length" : "stop";
}

Json response_json(const Identity& identity, const std::string& id, Json choices) {
  return {{"id", id},
          {"object", "text_completion"},
          {"created", identity.created},
          {"model", identity.model},
          {"choices", std::move(choices)}};
}

Json choice_json(std::string_view text, Json logprobs, Json reason) {
  return {
      {"index", 0}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}};
}

class CompletionStream final : public AnswerStream {
 public:
  CompletionStream(const Task& task, const Identity& identity, Emit emit)
      : task_(task), identity_(identity), id_("cmpl-" + identity.random_id()), emit_(std::move(emit)) {}

  void started(int /*prompt_tokens*/) override {}
  void reasoning(std::string_view text) override { content(text); }
  void content(std::string_view text) override { send(text, nullptr); }
  void logprobs(std::span<const TokenLogprob> tokens) override {
    logprobs_.insert(logprobs_.end(), tokens.begin(), tokens.end());
  }
  void tool_call(int /*index*/, std::string_view /*name*/) override {}
  void tool_arguments(int /*index*/, std::string_view /*json*/) override {}
  void finished(const Outcome& outcome) override {
    send("", finish_reason(outcome.finish));
    if (task_.stream_usage) {
      Json usage = response_json(identity_, id_, Json::array());
      usage["usage"] = usage_json(outcome);
      emit_(data_event(usage));
    }
    emit_("data: [DONE]\n\n");
  }
  void keep_alive() override { emit_(": still here\n\n"); }
  void failed(const ApiError& error) override { emit_(data_event(openai_error(error))); }

 private:
  void send(std::string_view text, Json reason) {
    Json logprobs = nullptr;
    if (!logprobs_.empty()) logprobs = logprobs_json(logprobs_, offset_);
    logprobs_.clear();
    Json choices = Json::array({choice_json(text, std::move(logprobs), std::move(reason))});
    emit_(data_event(response_json(identity_, id_, std::move(choices))));
  }

  const Task& task_;
  const Identity& identity_;
  const std::string id_;
  const Emit emit_;
  std::vector<TokenLogprob> logprobs_;  ///< that go with the next chunk
  size_t offset_ = 0;
};

class Completions final : public Api {
 public:
  std::string_view name() const override { return "completions"; }

  Task parse(const Json& json, const Defaults& defaults) override {
    const Node request(json);
    constexpr std::array<std::string_view, 3> kUnknown = {"logit_bias", "suffix", "echo"};
    refuse_fields(request, kUnknown);
    for (const char* key : {"n", "best_of"}) {
      if (const auto n = request.find(key); n && n->integer(1, 128) != 1) n->refuse("must be 1");
    }
    Task task;
    task.sampler = read_sampling(request, defaults);
    task.max_tokens = read_max_tokens(request, "max_tokens");
    if (task.max_tokens == 0) task.max_tokens = 16;  // the API's default
    task.stop = read_stop(request, "stop");
    task.ignore_end = request.boolean_or("ignore_eos", false);
    if (const auto top = request.find("logprobs")) task.top_logprobs = static_cast<int>(top->integer(0, 20));
    task.stream = request.boolean_or("stream", false);
    if (const auto options = request.find("stream_options"))
      task.stream_usage = options->boolean_or("include_usage", false);
    read_prompt(request.at("prompt"), task);
    if (const auto format = request.find("response_format")) {
      const auto holder = format->find("json_schema");
      read_text_format(*format, holder ? *holder : *format, task);
    }
    return task;
  }

  Json whole(const Task& task, const Identity& identity, const WholeAnswer& answer) override {
    size_t offset = 0;
    Json logprobs = nullptr;
    if (task.top_logprobs >= 0) logprobs = logprobs_json(answer.logprobs(), offset);
    Json choice = choice_json(answer.content(), std::move(logprobs), finish_reason(answer.outcome().finish));
    Json out = response_json(identity, "cmpl-" + identity.random_id(), Json::array({std::move(choice)}));
    out["usage"] = usage_json(answer.outcome());
    return out;
  }

  std::unique_ptr<AnswerStream> stream(const Task& task, const Identity& identity, Emit emit) override {
    return std::make_unique<CompletionStream>(task, identity, std::move(emit));
  }

  Json error(const ApiError& error) const override { return openai_error(error); }
};

}  // namespace
}  // namespace completions_api

std::unique_ptr<Api> openai_completions() {
  return std::make_unique<completions_api::Completions>();
}

}  // namespace redlite::server
