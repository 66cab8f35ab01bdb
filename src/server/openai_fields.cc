#include "server/openai_fields.h"

#include <algorithm>
#include <limits>
#include <random>

namespace redlite::server {
namespace {

constexpr int kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxToolName = 128;

void read_number(const Node& request, std::string_view key, double low, double high, float& value) {
  if (const auto node = request.find(key)) value = static_cast<float>(node->number(low, high));
}

bool is_name_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '.' || c == ':' || c == '/';
}

}  // namespace

namespace {

/// Any whole number of 64 bits, with or without a sign.
uint32_t read_seed(const Node& node) {
  if (node.json().is_number_unsigned()) return static_cast<uint32_t>(node.json().get<uint64_t>());
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 2;
  return static_cast<uint32_t>(node.integer(-kLargest, kLargest));
}

}  // namespace

engine::SamplerOptions read_sampling(const Node& request, const Defaults& defaults) {
  engine::SamplerOptions sampler = defaults.sampler;
  read_number(request, "temperature", 0, 100, sampler.temperature);
  read_number(request, "top_p", 0, 1, sampler.top_p);
  read_number(request, "min_p", 0, 1, sampler.min_p);
  read_number(request, "presence_penalty", -2, 2, sampler.presence_penalty);
  read_number(request, "frequency_penalty", -2, 2, sampler.frequency_penalty);
  // The names that vLLM and llama.cpp have for it.
  for (const char* key : {"repetition_penalty", "repeat_penalty"})
    read_number(request, key, 0.01, 100, sampler.repeat_penalty);
  if (const auto node = request.find("top_k")) sampler.top_k = static_cast<int>(node->integer(-1, 1 << 30));
  if (const auto node = request.find("seed")) {
    sampler.seed = read_seed(*node);
  } else if (defaults.random_seed) {
    sampler.seed = std::random_device()();
  }
  return sampler;
}

std::vector<std::string> read_stop(const Node& request, std::string_view key) {
  const auto node = request.find(key);
  if (!node) return {};
  std::vector<Node> nodes = node->is_string() ? std::vector<Node>{*node} : node->array();
  if (nodes.size() > kMaxStops) node->refuse(fmt::format("may have at most {} strings", kMaxStops));
  std::vector<std::string> stops;
  for (const Node& stop : nodes) {
    if (stop.string().empty()) continue;  // it would end every answer before it begins
    if (stop.string().size() > kMaxStopBytes) stop.refuse("is longer than 256 bytes");
    stops.push_back(stop.string());
  }
  return stops;
}

int read_max_tokens(const Node& request, std::string_view key) {
  const auto node = request.find(key);
  if (!node) return 0;
  const int64_t tokens = node->integer(-1, 1 << 30);
  if (tokens == 0) node->refuse("must be at least 1, or -1 for as many as the context holds");
  return static_cast<int>(std::max<int64_t>(tokens, 0));
}

void refuse_fields(const Node& request, std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    const auto node = request.find(key);
    if (!node) continue;
    const Json& value = node->json();
    const bool harmless = value.empty() || (value.is_boolean() && !value.get<bool>());
    if (!harmless) node->refuse("is not supported by this server");
  }
}

Json make_tool(const Node& name, std::string_view description, Json parameters) {
  const std::string& text = name.string();
  if (text.empty() || text.size() > kMaxToolName || !std::all_of(text.begin(), text.end(), is_name_char))
    name.refuse("must be 1 to 128 of the characters a-z A-Z 0-9 _ - . : /");
  Json function = {{"name", text}, {"description", description}};
  if (parameters.is_null()) parameters = {{"type", "object"}, {"properties", Json::object()}};
  function["parameters"] = std::move(parameters);
  return {{"type", "function"}, {"function", std::move(function)}};
}

void require_tool(const Node& where, const Json& tools, const std::string& name) {
  const bool known = tools.is_array() && std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
                       return tool["function"]["name"] == name;
                     });
  if (!known) where.refuse("names none of the tools");
}

void read_tool_choice(const Node& request, Task& task, chat::Conversation& conversation) {
  task.parallel_tool_calls = request.boolean_or("parallel_tool_calls", true);
  const auto choice = request.find("tool_choice");
  if (!choice) return;
  if (choice->is_object()) {
    if (choice->at("type").string() != "function") choice->at("type").refuse("must be function");
    const auto function = choice->find("function");
    task.tool_use = ToolUse::Named;
    task.tool_name = (function ? *function : *choice).at("name").string();
    require_tool(*choice, conversation.tools, task.tool_name);
  } else if (choice->string() == "none") {
    conversation.tools = nullptr;
  } else if (choice->string() == "required") {
    if (!conversation.tools.is_array()) choice->refuse("is 'required', but there are no tools");
    task.tool_use = ToolUse::Required;
  } else if (choice->string() != "auto") {
    choice->refuse("must be none, auto, required or a function");
  }
}

void read_text_format(const Node& format, const Node& schema_holder, Task& task) {
  const std::string& type = format.at("type").string();
  if (type == "text") return;
  if (type == "json_object") {
    task.format = TextFormat::JsonObject;
  } else if (type == "json_schema") {
    task.format = TextFormat::JsonSchema;
    task.schema = schema_holder.at("schema").object();
  } else {
    format.at("type").refuse("must be text, json_object or json_schema");
  }
}

std::string read_text(const Node& content) {
  if (content.is_string()) return content.string();
  std::string text;
  for (const Node& part : content.array()) {
    if (part.is_string()) {
      text += part.string();
      continue;
    }
    const std::string& type = part.at("type").string();
    if (type == "text" || type == "input_text" || type == "output_text" || type == "summary_text" ||
        type == "reasoning_text") {
      text += part.at("text").string();
    } else if (type == "refusal") {
      text += part.at("refusal").string();
    } else {
      part.at("type").refuse("only text can be read by this model");
    }
  }
  return text;
}

void add_message(Json& messages, Json message) {
  if (message["role"] == "system" && messages.size() == 1 && messages[0]["role"] == "system") {
    messages[0]["content"] =
        messages[0]["content"].get<std::string>() + "\n\n" + message["content"].get<std::string>();
    return;
  }
  messages.push_back(std::move(message));
}

Json openai_error(const ApiError& error) {
  const int status = error.status();
  std::string_view type = "invalid_request_error";
  Json code = nullptr;
  if (error.is_too_long()) {
    code = "context_length_exceeded";
  } else if (status == 401) {
    code = "invalid_api_key";
  } else if (status == 403) {
    type = "permission_error";
  } else if (status == 404) {
    code = "not_found";
  } else if (status == 429) {
    type = "rate_limit_error";
    code = "rate_limit_exceeded";
  } else if (status >= 500) {
    type = "server_error";
  }
  const Json parameter = error.parameter().empty() ? Json() : Json(error.parameter());
  return {{"error", {{"message", error.what()}, {"type", type}, {"param", parameter}, {"code", code}}}};
}

namespace {

Json bytes_json(const std::string& piece) {
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

Json logprob_json(const TokenLogprob& token) {
  Json top = Json::array();
  for (const auto& [piece, logprob] : token.top)
    top.push_back({{"token", piece}, {"logprob", logprob}, {"bytes", bytes_json(piece)}});
  return {{"token", token.piece},
          {"logprob", token.logprob},
          {"bytes", bytes_json(token.piece)},
          {"top_logprobs", std::move(top)}};
}

std::string data_event(const Json& json) {
  return "data: " + to_text(json) + "\n\n";
}

}  // namespace redlite::server
