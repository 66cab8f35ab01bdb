#include "server/constraint.h"

namespace redlite::server {
namespace {

using GrammarPointer = std::shared_ptr<const constrain::Grammar>;

GrammarPointer tool_grammar(const Task& task, chat::ToolFormat format, chat::Reasoning reasoning) {
  constrain::ToolRules rules{.required = task.tool_use != ToolUse::Auto,
                             .parallel = task.parallel_tool_calls,
                             .name = task.tool_name};
  if (task.format != TextFormat::Any && !rules.required)
    rules.text = task.format == TextFormat::JsonObject ? Json{{"type", "object"}} : task.schema;
  try {
    return constrain::tool_calls(task.conversation()->tools, rules, format, reasoning);
  } catch (const Error& e) {
    if (rules.required) throw ApiError(400, e.what(), "tools");
    if (rules.text) throw ApiError(400, e.what(), "response_format");
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<const constrain::Grammar> Constraints::grammar(const Task& task, chat::ToolFormat format,
                                                               chat::Reasoning reasoning) const {
  if (task.has_tools()) {
    if (format != chat::ToolFormat::None) return tool_grammar(task, format, reasoning);
    if (task.tool_use != ToolUse::Auto)
      throw ApiError(400, "tool_choice: the model's chat template does not show how it calls tools",
                     "tool_choice");
  }
  try {
    if (task.format == TextFormat::JsonObject) return constrain::json_object(reasoning);
    if (task.format == TextFormat::JsonSchema) return constrain::json_schema(task.schema, reasoning);
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "response_format");
  }
  return nullptr;
}

std::shared_ptr<engine::TokenFilter> Constraints::filter(const Task& task, chat::ToolFormat format,
                                                         chat::Reasoning reasoning) const {
  GrammarPointer wanted = grammar(task, format, reasoning);
  if (!wanted) return nullptr;
  std::call_once(once_, [this] { vocabulary_ = constrain::make_vocabulary(tokenizer_); });
  return constrain::make_filter(std::move(wanted), vocabulary_);
}

}  // namespace redlite::server
