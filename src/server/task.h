#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "chat/chat.h"
#include "engine/sampler.h"
#include "model/runner.h"
#include "server/json.h"

namespace redlite::server {

/// Whether an answer may or must call a tool.
enum class ToolUse : uint8_t { Auto, Required, Named };

/// What the text of an answer must be.
enum class TextFormat : uint8_t { Any, JsonObject, JsonSchema };

/// What any API asks for. Each adapter makes one of these of its own kind of request, and of the answer its
/// own kind of response; nothing between them knows which API it is.
struct Task {
  /// A conversation to be rendered with the model's template, a text, or tokens.
  std::variant<chat::Conversation, std::string, std::vector<model::Token>> prompt;

  engine::SamplerOptions sampler;
  int max_tokens = 0;  ///< 0: until the context is full
  std::vector<std::string> stop;
  int top_logprobs = -1;  ///< -1: none
  bool ignore_end = false;

  ToolUse tool_use = ToolUse::Auto;
  std::string tool_name;  ///< Named
  bool parallel_tool_calls = true;
  TextFormat format = TextFormat::Any;
  Json schema;  ///< JsonSchema

  bool stream = false;
  bool stream_usage = false;     ///< OpenAI: a last chunk with the usage
  bool stream_progress = false;  ///< ours: chunks that say how far the prompt is read
  /// What the response repeats or refers to, in the API's own words; only the adapter that wrote it reads it.
  Json echo;

  const chat::Conversation* conversation() const { return std::get_if<chat::Conversation>(&prompt); }
  bool has_tools() const {
    return conversation() != nullptr && conversation()->tools.is_array() && !conversation()->tools.empty();
  }
};

/// What holds where a request says nothing.
struct Defaults {
  engine::SamplerOptions sampler;
  bool random_seed = true;  ///< another seed for each request that names none
};

}  // namespace redlite::server
