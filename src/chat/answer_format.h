#pragma once

#include <cstdint>
#include <string_view>

namespace redlite::chat {

/// How a model writes its calls of tools.
enum class ToolFormat : uint8_t {
  None,
  /// <tool_call>\n{"name": "NAME", "arguments": {...}}\n</tool_call>: Qwen, Hermes.
  Json,
  /// <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>:
  /// Qwen3-Coder.
  Xml,
};

/// What a model's answers are made of besides text; its chat template shows it (Renderer::answer_format()).
struct AnswerFormat {
  bool reasoning = false;  ///< <think>...</think> in front
  ToolFormat tools = ToolFormat::None;
};

/// Whether an answer begins with reasoning.
enum class Reasoning : uint8_t {
  None,      ///< <think> is text like any other
  Possible,  ///< the answer may begin with <think>
  Open,      ///< the prompt ends inside <think>
};

inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCallBegin = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";

}  // namespace redlite::chat
