// POST /v1/messages, and the prompt of /v1/messages/count_tokens.

#include "server/api.h"
#include "server/openai_fields.h"

namespace redlite::server {
namespace messages_api {
namespace {

/// Claude Code puts a line that is another one in each request in front of everything; a prompt that began
/// with it could never go on from a kept state.
bool is_billing_header(const std::string& text) {
  return text.starts_with("x-anthropic-billing-header:");
}

std::string read_system(const Node& system) {
  if (system.is_string()) return system.string();
  std::string text;
  for (const Node& block : system.array()) {
    if (block.at("type").string() != "text") block.at("type").refuse("must be text");
    const std::string& part = block.at("text").string();
    if (is_billing_header(part)) continue;
    if (!text.empty()) text += "\n\n";
    text += part;
  }
  return text;
}

/// What a tool gave back: a string or blocks of text.
std::string read_result(const Node& block) {
  const auto content = block.find("content");
  std::string text = content ? read_text(*content) : "";
  if (block.boolean_or("is_error", false)) text = "Error: " + text;
  return text;
}

/// A message of the user: texts, and results of tools, which are messages of their own.
void read_user(const Node& content, Json& messages) {
  if (content.is_string()) {
    add_message(messages, {{"role", "user"}, {"content", content.string()}});
    return;
  }
  std::string text;
  const auto flush = [&] {
    if (!text.empty()) add_message(messages, {{"role", "user"}, {"content", text}});
    text.clear();
  };
  bool any = false;
  for (const Node& block : content.array()) {
    const std::string& type = block.at("type").string();
    any = true;
    if (type == "text") {
      if (!text.empty()) text += "\n\n";
      text += block.at("text").string();
    } else if (type == "tool_result") {
      flush();
      add_message(messages, {{"role", "tool"},
                             {"content", read_result(block)},
                             {"tool_call_id", block.at("tool_use_id").string()}});
    } else {
      block.at("type").refuse("only text and tool_result can be read by this model");
    }
  }
  flush();
  if (!any) content.refuse("must not be empty");
}

void read_assistant(const Node& content, Json& messages) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  if (content.is_string()) {
    message["content"] = content.string();
    add_message(messages, std::move(message));
    return;
  }
  std::string text, reasoning;
  for (const Node& block : content.array()) {
    const std::string& type = block.at("type").string();
    if (type == "text") {
      text += block.at("text").string();
    } else if (type == "thinking") {
      reasoning += block.at("thinking").string();
    } else if (type == "tool_use") {
      message["tool_calls"].push_back(
          {{"id", block.at("id").string()},
           {"type", "function"},
           {"function", {{"name", block.at("name").string()}, {"arguments", block.at("input").object()}}}});
    } else if (type != "redacted_thinking") {
      block.at("type").refuse("only text, thinking and tool_use can be read by this model");
    }
  }
  message["content"] = text;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  add_message(messages, std::move(message));
}

void read_tools(const Node& request, Task& task, chat::Conversation& conversation) {
  std::optional<Node> hosted;
  if (const auto tools = request.find("tools")) {
    Json list = Json::array();
    for (const Node& tool : tools->array()) {
      // Tools of other types are run by Anthropic's servers.
      if (tool.string_or("type", "custom") != "custom") {
        hosted = tool;
        continue;
      }
      list.push_back(
          make_tool(tool.at("name"), tool.string_or("description", ""), tool.at("input_schema").object()));
    }
    if (list.empty() && hosted) hosted->at("type").refuse("is a tool that this server does not have");
    if (!list.empty()) conversation.tools = std::move(list);
  }
  const auto choice = request.find("tool_choice");
  if (!choice) return;
  const std::string& type = choice->at("type").string();
  task.parallel_tool_calls = !choice->boolean_or("disable_parallel_tool_use", false);
  if (type == "none") {
    conversation.tools = nullptr;
  } else if (type == "any") {
    if (!conversation.tools.is_array()) choice->refuse("is 'any', but there are no tools");
    task.tool_use = ToolUse::Required;
  } else if (type == "tool") {
    task.tool_use = ToolUse::Named;
    task.tool_name = choice->at("name").string();
    require_tool(*choice, conversation.tools, task.tool_name);
  } else if (type != "auto") {
    choice->at("type").refuse("must be auto, any, tool or none");
  }
}

std::string_view stop_reason(Finish finish) {
  switch (finish) {
    case Finish::Length:
      return "max_tokens";
    case Finish::ToolCalls:
      return "tool_use";
    case Finish::StopString:
      return "stop_sequence";
    default:
      return "end_turn";
  }
}

Json stop_json(const Outcome& outcome) {
  Json stop = nullptr;
  if (outcome.finish == Finish::StopString) stop = outcome.stop;
  return {{"stop_reason", stop_reason(outcome.finish)}, {"stop_sequence", std::move(stop)}};
}

/// Input tokens are those that had to be read; those that were kept are counted beside them.
Json usage_json(const session::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.answer_tokens}};
}

Json message_json(const Identity& identity, Json content, Json stop, Json usage) {
  Json out = {{"id", "msg_" + identity.random_id()},
              {"type", "message"},
              {"role", "assistant"},
              {"model", identity.model},
              {"content", std::move(content)}};
  out.update(stop);
  out["usage"] = std::move(usage);
  return out;
}

Json error_json(const ApiError& error) {
  std::string_view type = "invalid_request_error";
  switch (error.status()) {
    case 401:
      type = "authentication_error";
      break;
    case 403:
      type = "permission_error";
      break;
    case 404:
      type = "not_found_error";
      break;
    case 413:
      type = "request_too_large";
      break;
    case 429:
      type = "rate_limit_error";
      break;
    case 503:
      type = "overloaded_error";
      break;
    default:
      if (error.status() >= 500) type = "api_error";
  }
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
}

class MessageStream final : public AnswerStream {
 public:
  MessageStream(const Identity& identity, Emit emit) : identity_(identity), emit_(std::move(emit)) {}

  void started(int prompt_tokens) override {
    session::Usage usage;
    usage.prompt_tokens = prompt_tokens;
    const Json none = {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
    send({{"type", "message_start"},
          {"message", message_json(identity_, Json::array(), none, usage_json(usage))}});
    keep_alive();
  }
  void reasoning(std::string_view text) override {
    open(Block::Thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    delta({{"type", "thinking_delta"}, {"thinking", text}});
  }
  void content(std::string_view text) override {
    open(Block::Text, {{"type", "text"}, {"text", ""}});
    delta({{"type", "text_delta"}, {"text", text}});
  }
  void logprobs(std::span<const TokenLogprob> /*tokens*/) override {}
  void tool_call(int /*index*/, std::string_view name) override {
    close();
    open(Block::Tool, {{"type", "tool_use"},
                       {"id", "toolu_" + identity_.random_id()},
                       {"name", name},
                       {"input", Json::object()}});
  }
  void tool_arguments(int /*index*/, std::string_view json) override {
    delta({{"type", "input_json_delta"}, {"partial_json", json}});
  }
  void finished(const Outcome& outcome) override {
    if (index_ < 0) open(Block::Text, {{"type", "text"}, {"text", ""}});
    close();
    send({{"type", "message_delta"}, {"delta", stop_json(outcome)}, {"usage", usage_json(outcome.usage)}});
    send({{"type", "message_stop"}});
  }
  void keep_alive() override { send({{"type", "ping"}}); }
  void failed(const ApiError& error) override { send(error_json(error)); }

 private:
  enum class Block : uint8_t { None, Thinking, Text, Tool };

  void send(const Json& event) {
    emit_(
        fmt::format("event: {}\ndata: {}\n\n", event["type"].get_ref<const std::string&>(), to_text(event)));
  }
  void open(Block kind, Json block) {
    if (open_ == kind) return;
    close();
    open_ = kind;
    send({{"type", "content_block_start"}, {"index", ++index_}, {"content_block", std::move(block)}});
  }
  void delta(Json delta) {
    send({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  void close() {
    if (open_ == Block::None) return;
    if (open_ == Block::Thinking) delta({{"type", "signature_delta"}, {"signature", ""}});
    open_ = Block::None;
    send({{"type", "content_block_stop"}, {"index", index_}});
  }

  const Identity& identity_;
  const Emit emit_;
  Block open_ = Block::None;
  int index_ = -1;
};

/// Arguments as the API wants them, an object. What the model wrote and is none is kept as it is, under a
/// name of its own.
Json input_json(const std::string& arguments) {
  Json input = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (input.is_object()) return input;
  return {{"invalid_json", arguments}};
}

class Messages final : public Api {
 public:
  std::string_view name() const override { return "messages"; }

  Task parse(const Json& json, const Defaults& defaults) override {
    const Node request(json);
    Task task;
    task.sampler = read_sampling(request, defaults);
    task.max_tokens = read_max_tokens(request, "max_tokens");
    task.stop = read_stop(request, "stop_sequences");
    task.stream = request.boolean_or("stream", false);

    chat::Conversation conversation;
    if (const auto system = request.find("system")) {
      if (std::string text = read_system(*system); !text.empty())
        add_message(conversation.messages, {{"role", "system"}, {"content", std::move(text)}});
    }
    const size_t before = conversation.messages.size();
    for (const Node& message : request.at("messages").array()) {
      const std::string& role = message.at("role").string();
      const Node content = message.at("content");
      if (role == "user") {
        read_user(content, conversation.messages);
      } else if (role == "assistant") {
        read_assistant(content, conversation.messages);
      } else if (role == "system") {
        add_message(conversation.messages, {{"role", "system"}, {"content", read_system(content)}});
      } else {
        message.at("role").refuse("must be user or assistant");
      }
    }
    if (conversation.messages.size() == before) request.at("messages").refuse("must not be empty");
    read_tools(request, task, conversation);
    if (const auto thinking = request.find("thinking"))
      conversation.extra["enable_thinking"] = thinking->at("type").string() != "disabled";
    if (const auto config = request.find("output_config")) {
      if (const auto format = config->find("format")) read_text_format(*format, *format, task);
    }
    if (const auto format = request.find("output_format")) read_text_format(*format, *format, task);
    // An answer that the client has begun goes on.
    const Json& last = conversation.messages.back();
    if (last["role"] == "assistant" && !last.contains("tool_calls") &&
        !last["content"].get_ref<const Json::string_t&>().empty()) {
      if (task.format != TextFormat::Any)
        request.at("messages")
            .refuse("must not end with an answer that is begun where it has to have a format");
      conversation.continue_last = true;
    }
    task.prompt = std::move(conversation);
    return task;
  }

  Json whole(const Task& /*task*/, const Identity& identity, const WholeAnswer& answer) override {
    Json content = Json::array();
    if (!answer.reasoning().empty())
      content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning()}, {"signature", ""}});
    if (!answer.content().empty() || answer.calls().empty())
      content.push_back({{"type", "text"}, {"text", answer.content()}});
    for (const ToolCall& call : answer.calls()) {
      content.push_back({{"type", "tool_use"},
                         {"id", "toolu_" + identity.random_id()},
                         {"name", call.name},
                         {"input", input_json(call.arguments)}});
    }
    const Outcome& outcome = answer.outcome();
    return message_json(identity, std::move(content), stop_json(outcome), usage_json(outcome.usage));
  }

  std::unique_ptr<AnswerStream> stream(const Task& /*task*/, const Identity& identity, Emit emit) override {
    return std::make_unique<MessageStream>(identity, std::move(emit));
  }

  Json error(const ApiError& error) const override { return error_json(error); }
};

}  // namespace
}  // namespace messages_api

std::unique_ptr<Api> anthropic_messages() {
  return std::make_unique<messages_api::Messages>();
}

}  // namespace redlite::server
