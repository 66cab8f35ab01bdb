#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/task.h"

namespace redlite::server {

// What the OpenAI APIs have in common.

/// temperature, top_p, top_k, min_p, the penalties, seed.
engine::SamplerOptions read_sampling(const Node& request, const Defaults& defaults);

/// "stop" (or "stop_sequences"): a string, or some of them.
std::vector<std::string> read_stop(const Node& request, std::string_view key);

/// The most tokens that a field allows; 0 where it is absent.
int read_max_tokens(const Node& request, std::string_view key);

/// Throws ApiError for fields that would change the answer and that are not supported.
void refuse_fields(const Node& request, std::span<const std::string_view> keys);

/// Checks and keeps what a tool is to a template: {"type": "function", "function": {name, description,
/// parameters}}. Throws ApiError for names that no answer could repeat.
Json make_tool(const Node& name, std::string_view description, Json parameters);

/// Throws ApiError unless one of the tools has the name.
void require_tool(const Node& where, const Json& tools, const std::string& name);

/// tool_choice: none, auto, required, or a function by name (in "function", or beside "type"). With none the
/// tools are left out of the prompt.
void read_tool_choice(const Node& request, Task& task, chat::Conversation& conversation);

/// response_format of chat, and text.format of responses, where the schema lies one level higher.
void read_text_format(const Node& format, const Node& schema_holder, Task& task);

/// The text of a message: a string, or parts of which each is a text. Throws ApiError for images and others.
std::string read_text(const Node& content);

/// Adds a message, or, where it is a system message behind others at the beginning, adds to that: most
/// templates know one.
void add_message(Json& messages, Json message);

/// {"error": {"message", "type", "param", "code"}}.
Json openai_error(const ApiError& error);

/// {"token", "logprob", "bytes", "top_logprobs"}, as chat and responses have it.
Json logprob_json(const TokenLogprob& token);

/// "data: ...\n\n".
std::string data_event(const Json& json);

}  // namespace redlite::server
