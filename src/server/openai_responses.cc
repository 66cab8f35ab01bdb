// POST /v1/responses: what agents use of it.

#include <algorithm>
#include <array>

#include "server/api.h"
#include "server/openai_fields.h"
#include "server/response_store.h"

namespace redlite::server {
namespace responses_api {
namespace {

constexpr uint64_t kStoreBytes = uint64_t{64} << 20;

/// Makes messages of input items: calls join the assistant's message before them, reasoning the one behind.
class InputReader {
 public:
  explicit InputReader(Json& messages) : messages_(messages) {}

  void read(const Node& item) {
    const std::string type = item.string_or("type", "message");
    if (type == "message") {
      read_message(item);
    } else if (type == "function_call") {
      read_call(item);
    } else if (type == "function_call_output") {
      add_message(messages_, {{"role", "tool"},
                              {"content", read_text(item.at("output"))},
                              {"tool_call_id", item.at("call_id").string()}});
    } else if (type == "reasoning") {
      const auto content = item.find("content");
      const auto summary = item.find("summary");
      reasoning_ = content ? read_text(*content) : summary ? read_text(*summary) : "";
    } else {
      item.at("type").refuse("must be message, function_call, function_call_output or reasoning");
    }
  }

 private:
  void read_message(const Node& item) {
    std::string role = item.at("role").string();
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      item.at("role").refuse("must be system, developer, user or assistant");
    Json message = {{"role", role}, {"content", read_text(item.at("content"))}};
    if (role == "assistant") take_reasoning(message);
    add_message(messages_, std::move(message));
  }

  void read_call(const Node& item) {
    Json call = {
        {"id", item.at("call_id").string()},
        {"type", "function"},
        {"function", {{"name", item.at("name").string()}, {"arguments", item.at("arguments").string()}}}};
    if (messages_.empty() || messages_.back()["role"] != "assistant" || !reasoning_.empty()) {
      Json message = {{"role", "assistant"}, {"content", ""}};
      take_reasoning(message);
      messages_.push_back(std::move(message));
    }
    messages_.back()["tool_calls"].push_back(std::move(call));
  }

  void take_reasoning(Json& message) {
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, "");
  }

  Json& messages_;
  std::string reasoning_;  ///< of an item, until the message it belongs to comes
};

void read_tools(const Node& request, Task& task, chat::Conversation& conversation) {
  std::optional<Node> hosted;
  if (const auto tools = request.find("tools")) {
    Json list = Json::array();
    for (const Node& tool : tools->array()) {
      // Tools of other types are run by OpenAI's servers, or are optional extras of its own agents.
      if (tool.at("type").string() != "function") {
        hosted = tool;
        continue;
      }
      const auto parameters = tool.find("parameters");
      list.push_back(make_tool(tool.at("name"), tool.string_or("description", ""),
                               parameters ? parameters->object() : Json()));
    }
    if (list.empty() && hosted) hosted->at("type").refuse("is a tool that this server does not have");
    if (!list.empty()) conversation.tools = std::move(list);
  }
  read_tool_choice(request, task, conversation);
}

Json usage_json(const Outcome& outcome) {
  const session::Usage& usage = outcome.usage;
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.answer_tokens},
          {"output_tokens_details", {{"reasoning_tokens", outcome.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens}};
}

/// What a request says and its response repeats.
Json echo_of(const Node& request, const Task& task) {
  const auto value = [&](std::string_view key, const Json& otherwise) {
    const auto node = request.find(key);
    return node ? node->json() : otherwise;
  };
  Json text = value("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  return {{"instructions", value("instructions", nullptr)},
          {"max_output_tokens", value("max_output_tokens", nullptr)},
          {"metadata", value("metadata", Json::object())},
          {"parallel_tool_calls", task.parallel_tool_calls},
          {"previous_response_id", value("previous_response_id", nullptr)},
          {"reasoning", value("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", request.boolean_or("store", true)},
          {"temperature", short_number(task.sampler.temperature)},
          {"text", std::move(text)},
          {"tool_choice", value("tool_choice", "auto")},
          {"tools", value("tools", Json::array())},
          {"top_p", short_number(task.sampler.top_p)},
          {"truncation", "disabled"},
          {"user", value("user", nullptr)}};
}

/// Writes the events, and puts the response together on the way.
class ResponseStream final : public AnswerStream {
 public:
  ResponseStream(const Task& task, const Identity& identity, ResponseStore& store, Emit emit)
      : task_(task), identity_(identity), store_(store), emit_(std::move(emit)) {
    response_ = {{"id", "resp_" + identity.random_id()},
                 {"object", "response"},
                 {"created_at", identity.created},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"model", identity.model},
                 {"output", Json::array()},
                 {"usage", nullptr}};
    response_.update(task.echo);
  }

  void started(int /*prompt_tokens*/) override {
    send("response.created", {{"response", response_}});
    send("response.in_progress", {{"response", response_}});
  }

  void reasoning(std::string_view text) override {
    if (kind_ != Kind::Reasoning) {
      open(Kind::Reasoning, {{"id", "rs_" + identity_.random_id()},
                             {"type", "reasoning"},
                             {"summary", Json::array()},
                             {"content", Json::array()},
                             {"status", "in_progress"}});
      open_part({{"type", "reasoning_text"}, {"text", ""}});
    }
    text_ += text;
    send("response.reasoning_text.delta", in_part({{"delta", text}}));
  }

  void content(std::string_view text) override {
    if (kind_ != Kind::Message) {
      open(Kind::Message, {{"id", "msg_" + identity_.random_id()},
                           {"type", "message"},
                           {"status", "in_progress"},
                           {"role", "assistant"},
                           {"content", Json::array()}});
      open_part({{"type", "output_text"},
                 {"text", ""},
                 {"annotations", Json::array()},
                 {"logprobs", Json::array()}});
    }
    text_ += text;
    send("response.output_text.delta",
         in_part({{"delta", text}, {"logprobs", std::exchange(fresh_, Json::array())}}));
  }

  void logprobs(std::span<const TokenLogprob> tokens) override {
    for (const TokenLogprob& token : tokens) {
      fresh_.push_back(logprob_json(token));
      logprobs_.push_back(fresh_.back());
    }
  }

  void tool_call(int /*index*/, std::string_view name) override {
    close("completed");
    open(Kind::Call, {{"id", "fc_" + identity_.random_id()},
                      {"type", "function_call"},
                      {"status", "in_progress"},
                      {"arguments", ""},
                      {"call_id", "call_" + identity_.random_id()},
                      {"name", name}});
  }

  void tool_arguments(int /*index*/, std::string_view json) override {
    text_ += json;
    send("response.function_call_arguments.delta", in_item({{"delta", json}}));
  }

  void finished(const Outcome& outcome) override {
    const bool complete = outcome.finish != Finish::Length;
    const std::string status = complete ? "completed" : "incomplete";
    if (response_["output"].empty() && kind_ == Kind::None) content("");
    close(status);
    response_["status"] = status;
    if (!complete) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response_["usage"] = usage_json(outcome);
    if (response_["store"] == true) keep();
    send("response." + status, {{"response", response_}});
  }

  void keep_alive() override { emit_(": still here\n\n"); }

  void failed(const ApiError& error) override {
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", error.what()}};
    send("response.failed", {{"response", response_}});
  }

  const Json& response() const { return response_; }

 private:
  enum class Kind : uint8_t { None, Reasoning, Message, Call };

  void send(const std::string& type, Json fields) {
    if (!emit_) return;
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    emit_(fmt::format("event: {}\ndata: {}\n\n", type, to_text(event)));
  }

  Json in_item(Json fields) {
    Json out = {{"item_id", item_["id"]}, {"output_index", response_["output"].size()}};
    out.update(fields);
    return out;
  }
  Json in_part(Json fields) {
    fields["content_index"] = 0;
    return in_item(std::move(fields));
  }

  void open(Kind kind, Json item) {
    close("completed");
    kind_ = kind;
    item_ = std::move(item);
    send("response.output_item.added", {{"output_index", response_["output"].size()}, {"item", item_}});
  }

  void open_part(Json part) {
    part_ = std::move(part);
    if (kind_ == Kind::Message) send("response.content_part.added", in_part({{"part", part_}}));
  }

  void close(const std::string& status) {
    if (kind_ == Kind::None) return;
    if (kind_ == Kind::Call) {
      item_["arguments"] = text_;
      send("response.function_call_arguments.done", in_item({{"arguments", text_}, {"name", item_["name"]}}));
    } else {
      part_["text"] = text_;
      if (kind_ == Kind::Message) {
        part_["logprobs"] = std::exchange(logprobs_, Json::array());
        send("response.output_text.done", in_part({{"text", text_}, {"logprobs", part_["logprobs"]}}));
        send("response.content_part.done", in_part({{"part", part_}}));
      } else {
        send("response.reasoning_text.done", in_part({{"text", text_}}));
      }
      item_["content"].push_back(part_);
    }
    item_["status"] = status;
    send("response.output_item.done", {{"output_index", response_["output"].size()}, {"item", item_}});
    response_["output"].push_back(std::move(item_));
    text_.clear();
    kind_ = Kind::None;
  }

  /// Keeps the conversation with this answer, for the next request to go on from.
  void keep() {
    Json messages = task_.conversation()->messages;
    // Instructions hold for one response only.
    if (response_["instructions"].is_string() && !messages.empty()) {
      Json& first = messages[0];
      const std::string& instructions = response_["instructions"].get_ref<const std::string&>();
      const std::string content = first["content"].get<std::string>();
      if (content == instructions) {
        messages.erase(0);
      } else if (content.starts_with(instructions + "\n\n")) {
        first["content"] = content.substr(instructions.size() + 2);
      }
    }
    InputReader reader(messages);
    for (const Json& item : response_["output"]) reader.read(Node(item));
    store_.put(response_["id"].get<std::string>(), messages);
  }

  const Task& task_;
  const Identity& identity_;
  ResponseStore& store_;
  const Emit emit_;
  int sequence_ = 0;
  Json response_;
  Kind kind_ = Kind::None;
  Json item_, part_;               ///< those that are being written
  std::string text_;               ///< of the part, or the arguments
  Json fresh_ = Json::array();     ///< logprobs that go with the next delta
  Json logprobs_ = Json::array();  ///< ... and all of this part's
};

class Responses final : public Api {
 public:
  std::string_view name() const override { return "responses"; }

  Task parse(const Json& json, const Defaults& defaults) override {
    const Node request(json);
    constexpr std::array<std::string_view, 3> kUnknown = {"background", "conversation", "prompt"};
    refuse_fields(request, kUnknown);
    Task task;
    task.sampler = read_sampling(request, defaults);
    task.max_tokens = read_max_tokens(request, "max_output_tokens");
    task.stream = request.boolean_or("stream", false);
    if (const auto include = request.find("include")) {
      for (const Node& what : include->array()) {
        if (what.string() == "message.output_text.logprobs") task.top_logprobs = 0;
      }
    }
    if (const auto top = request.find("top_logprobs"); top && top->integer(0, 20) > 0)
      task.top_logprobs = static_cast<int>(top->integer(0, 20));

    chat::Conversation conversation;
    if (const auto instructions = request.find("instructions");
        instructions && !instructions->string().empty())
      add_message(conversation.messages, {{"role", "system"}, {"content", instructions->string()}});
    if (const auto id = request.find("previous_response_id")) {
      const std::optional<Json> before = store_.get(id->string());
      if (!before) {
        throw ApiError(
            404,
            fmt::format("previous_response_id: there is no response {} (any more)", quote_id(id->string())),
            "previous_response_id");
      }
      for (const Json& message : *before) add_message(conversation.messages, message);
    }
    const size_t before = conversation.messages.size();
    read_input(request.at("input"), conversation.messages);
    if (conversation.messages.size() == before) request.at("input").refuse("must not be empty");
    read_tools(request, task, conversation);
    if (const auto reasoning = request.find("reasoning")) {
      if (const auto effort = reasoning->find("effort"))
        conversation.extra["enable_thinking"] = effort->string() != "none";
    }
    if (const auto text = request.find("text")) {
      if (const auto format = text->find("format")) read_text_format(*format, *format, task);
    }
    task.prompt = std::move(conversation);
    task.echo = echo_of(request, task);
    return task;
  }

  Json whole(const Task& task, const Identity& identity, const WholeAnswer& answer) override {
    ResponseStream stream(task, identity, store_, nullptr);
    if (!answer.reasoning().empty()) stream.reasoning(answer.reasoning());
    stream.logprobs(answer.logprobs());
    if (!answer.content().empty()) stream.content(answer.content());
    int index = 0;
    for (const ToolCall& call : answer.calls()) {
      stream.tool_call(index, call.name);
      stream.tool_arguments(index++, call.arguments);
    }
    stream.finished(answer.outcome());
    return stream.response();
  }

  std::unique_ptr<AnswerStream> stream(const Task& task, const Identity& identity, Emit emit) override {
    return std::make_unique<ResponseStream>(task, identity, store_, std::move(emit));
  }

  Json error(const ApiError& error) const override { return openai_error(error); }

 private:
  static void read_input(const Node& input, Json& messages) {
    if (input.is_string()) {
      add_message(messages, {{"role", "user"}, {"content", input.string()}});
      return;
    }
    InputReader reader(messages);
    for (const Node& item : input.array()) reader.read(item);
  }

  static std::string quote_id(const std::string& id) { return "'" + id.substr(0, 64) + "'"; }

  ResponseStore store_{kStoreBytes};
};

}  // namespace
}  // namespace responses_api

std::unique_ptr<Api> openai_responses() {
  return std::make_unique<responses_api::Responses>();
}

}  // namespace redlite::server
