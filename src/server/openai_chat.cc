// POST /v1/chat/completions.

#include <array>

#include "server/api.h"
#include "server/openai_fields.h"

namespace redlite::server {
namespace chat_api {
namespace {

Json read_calls(const Node& calls) {
  Json out = Json::array();
  for (const Node& call : calls.array()) {
    const Node function = call.at("function");
    Json arguments = function.find("arguments") ? function.at("arguments").json() : Json("{}");
    if (!arguments.is_string() && !arguments.is_object())
      function.at("arguments").refuse("must be a string of JSON");
    out.push_back({{"id", call.string_or("id", "")},
                   {"type", "function"},
                   {"function", {{"name", function.at("name").string()}, {"arguments", arguments}}}});
  }
  return out;
}

Json read_message(const Node& message) {
  std::string role = message.at("role").string();
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    message.at("role").refuse("must be system, developer, user, assistant or tool");
  Json out = {{"role", role}};
  const auto content = message.find("content");
  const auto calls = message.find("tool_calls");
  if (!content && role != "assistant") message.at("content");
  out["content"] = content ? read_text(*content) : "";
  if (const auto name = message.find("name")) out["name"] = name->string();
  if (role == "tool") out["tool_call_id"] = message.string_or("tool_call_id", "");
  if (role == "assistant") {
    for (const std::string_view key : {"reasoning_content", "reasoning"}) {
      const auto reasoning = message.find(key);
      if (reasoning && reasoning->is_string()) out["reasoning_content"] = reasoning->string();
    }
    if (calls && !calls->array().empty()) out["tool_calls"] = read_calls(*calls);
  }
  return out;
}

void read_tools(const Node& request, Task& task, chat::Conversation& conversation) {
  if (const auto tools = request.find("tools")) {
    Json list = Json::array();
    for (const Node& tool : tools->array()) {
      if (tool.at("type").string() != "function") tool.at("type").refuse("must be function");
      const Node function = tool.at("function");
      const auto parameters = function.find("parameters");
      list.push_back(make_tool(function.at("name"), function.string_or("description", ""),
                               parameters ? parameters->object() : Json()));
    }
    if (!list.empty()) conversation.tools = std::move(list);
  }
  read_tool_choice(request, task, conversation);
}

/// Whether to think, in the words of several servers.
void read_thinking(const Node& request, chat::Conversation& conversation) {
  if (const auto effort = request.find("reasoning_effort"))
    conversation.extra["enable_thinking"] = effort->string() != "none";
  if (const auto extra = request.find("chat_template_kwargs")) {
    for (const auto& [key, value] : extra->object().items()) conversation.extra[key] = value;
  }
}

Json usage_json(const Outcome& outcome) {
  const session::Usage& usage = outcome.usage;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.answer_tokens},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", outcome.reasoning_tokens}}}};
}

/// How long what took: not part of the API, but what llama.cpp's clients, and our page, show.
Json timings_json(const session::Usage& usage) {
  return {{"prompt_n", usage.prompt_tokens - usage.cached_tokens},
          {"prompt_ms", usage.prefill_seconds * 1e3},
          {"predicted_n", usage.answer_tokens},
          {"predicted_ms", usage.decode_seconds * 1e3},
          {"queue_ms", usage.queue_seconds * 1e3}};
}

std::string_view finish_reason(Finish finish) {
  switch (finish) {
    case Finish::Length:
      return "length";
    case Finish::ToolCalls:
      return "tool_calls";
    default:
      return "stop";
  }
}

Json logprobs_json(std::span<const TokenLogprob> tokens) {
  Json list = Json::array();
  for (const TokenLogprob& token : tokens) list.push_back(logprob_json(token));
  return {{"content", std::move(list)}, {"refusal", nullptr}};
}

class ChatStream final : public AnswerStream {
 public:
  ChatStream(const Task& task, const Identity& identity, Emit emit)
      : task_(task), identity_(identity), id_("chatcmpl-" + identity.random_id()), emit_(std::move(emit)) {}

  void started(int /*prompt_tokens*/) override { delta({{"role", "assistant"}, {"content", ""}}); }
  void reasoning(std::string_view text) override { delta({{"reasoning_content", text}}); }
  void content(std::string_view text) override { delta({{"content", text}}); }
  void logprobs(std::span<const TokenLogprob> tokens) override {
    logprobs_.insert(logprobs_.end(), tokens.begin(), tokens.end());
  }
  void tool_call(int index, std::string_view name) override {
    call({{"index", index},
          {"id", "call_" + identity_.random_id()},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", ""}}}});
  }
  void tool_arguments(int index, std::string_view json) override {
    call({{"index", index}, {"function", {{"arguments", json}}}});
  }
  void finished(const Outcome& outcome) override {
    Json last = chunk(Json::object(), finish_reason(outcome.finish));
    last["timings"] = timings_json(outcome.usage);
    emit_(data_event(last));
    if (task_.stream_usage) {
      Json usage = chunk({}, nullptr);
      usage["choices"] = Json::array();
      usage["usage"] = usage_json(outcome);
      emit_(data_event(usage));
    }
    emit_("data: [DONE]\n\n");
  }
  void reading(const session::ReadingProgress& progress) override {
    if (!task_.stream_progress) return;
    Json told = chunk({}, nullptr);
    told["choices"] = Json::array();
    told["redlite"] = {{"done_tokens", progress.done},
                       {"prompt_tokens", progress.total},
                       {"cached_tokens", progress.cached}};
    emit_(data_event(told));
  }
  void keep_alive() override { emit_(": still here\n\n"); }
  void failed(const ApiError& error) override { emit_(data_event(openai_error(error))); }

 private:
  Json chunk(Json delta, Json reason) {
    Json choice = {{"index", 0}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    if (!logprobs_.empty()) choice["logprobs"] = logprobs_json(logprobs_);
    logprobs_.clear();
    choice["finish_reason"] = std::move(reason);
    return {{"id", id_},
            {"object", "chat.completion.chunk"},
            {"created", identity_.created},
            {"model", identity_.model},
            {"choices", Json::array({std::move(choice)})}};
  }
  void delta(Json delta) { emit_(data_event(chunk(std::move(delta), nullptr))); }
  void call(Json call) { delta({{"tool_calls", Json::array({std::move(call)})}}); }

  const Task& task_;
  const Identity& identity_;
  const std::string id_;
  const Emit emit_;
  std::vector<TokenLogprob> logprobs_;  ///< that go with the next chunk
};

class Chat final : public Api {
 public:
  std::string_view name() const override { return "chat"; }

  Task parse(const Json& json, const Defaults& defaults) override {
    const Node request(json);
    constexpr std::array<std::string_view, 5> kUnknown = {"logit_bias", "audio", "functions", "function_call",
                                                          "web_search_options"};
    refuse_fields(request, kUnknown);
    if (const auto n = request.find("n"); n && n->integer(1, 128) != 1) n->refuse("must be 1");

    Task task;
    task.sampler = read_sampling(request, defaults);
    task.max_tokens = read_max_tokens(request, "max_completion_tokens");
    if (task.max_tokens == 0) task.max_tokens = read_max_tokens(request, "max_tokens");
    task.stop = read_stop(request, "stop");
    task.ignore_end = request.boolean_or("ignore_eos", false);
    if (request.boolean_or("logprobs", false)) {
      const auto top = request.find("top_logprobs");
      task.top_logprobs = top ? static_cast<int>(top->integer(0, 20)) : 0;
    }
    task.stream = request.boolean_or("stream", false);
    if (const auto options = request.find("stream_options"))
      task.stream_usage = options->boolean_or("include_usage", false);
    task.stream_progress = request.boolean_or("redlite_progress", false);

    chat::Conversation conversation;
    for (const Node& message : request.at("messages").array())
      add_message(conversation.messages, read_message(message));
    if (conversation.messages.empty()) request.at("messages").refuse("must not be empty");
    read_tools(request, task, conversation);
    read_thinking(request, conversation);
    if (const auto format = request.find("response_format")) {
      const auto holder = format->find("json_schema");
      read_text_format(*format, holder ? *holder : *format, task);
    }
    task.prompt = std::move(conversation);
    return task;
  }

  Json whole(const Task& task, const Identity& identity, const WholeAnswer& answer) override {
    Json message = {{"role", "assistant"}, {"content", answer.content()}, {"refusal", nullptr}};
    if (answer.content().empty() && !answer.calls().empty()) message["content"] = nullptr;
    if (!answer.reasoning().empty()) message["reasoning_content"] = answer.reasoning();
    for (const ToolCall& call : answer.calls()) {
      message["tool_calls"].push_back({{"id", "call_" + identity.random_id()},
                                       {"type", "function"},
                                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    Json choice = {{"index", 0}, {"message", std::move(message)}, {"logprobs", nullptr}};
    if (task.top_logprobs >= 0) choice["logprobs"] = logprobs_json(answer.logprobs());
    choice["finish_reason"] = finish_reason(answer.outcome().finish);
    return {{"id", "chatcmpl-" + identity.random_id()},
            {"object", "chat.completion"},
            {"created", identity.created},
            {"model", identity.model},
            {"choices", Json::array({std::move(choice)})},
            {"usage", usage_json(answer.outcome())},
            {"timings", timings_json(answer.outcome().usage)}};
  }

  std::unique_ptr<AnswerStream> stream(const Task& task, const Identity& identity, Emit emit) override {
    return std::make_unique<ChatStream>(task, identity, std::move(emit));
  }

  Json error(const ApiError& error) const override { return openai_error(error); }
};

}  // namespace
}  // namespace chat_api

std::unique_ptr<Api> openai_chat() {
  return std::make_unique<chat_api::Chat>();
}

}  // namespace redlite::server
