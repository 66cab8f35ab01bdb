#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/answer_format.h"
#include "chat/jinja/template.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace redlite::chat {

/// What a template is given, in the shape of the OpenAI API.
struct Conversation {
  /// An array of messages: {"role", "content", ...}; also tool_calls, tool_call_id, name, reasoning_content.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// An array of {"type": "function", "function": {...}}, or null.
  nlohmann::ordered_json tools;
  /// More variables, such as {"enable_thinking": false}; an object.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  /// End where the assistant's answer begins.
  bool add_generation_prompt = true;
  /// End where the last message's content does, for the model to go on with it; blanks at its end go.
  bool continue_last = false;
  /// For templates that give the date; by default the present.
  std::time_t now = std::time(nullptr);
};

struct Prompt {
  std::string text;
  /// The bytes that came from the conversation, in order: nothing in them is a control token, whatever it
  /// says.
  std::vector<tokenizer::Range> content;

  bool ends_in_content() const { return !content.empty() && content.back().end == text.size(); }
};

/// Renders conversations as a model's prompt, with the model's own template (tokenizer.chat_template; with
/// tools tokenizer.chat_template.tool_use, where the file has it). A file without one is given ChatML
/// (<|im_start|>role
/// ... <|im_end|>) if its vocabulary has the two tokens; otherwise the model was not made for chat.
///
/// Immutable and safe to share between threads.
class Renderer {
 public:
  /// Throws Error naming file and key when there is no template, or none that can be read.
  explicit Renderer(const gguf::File& file);
  /// With another template than the file's, with and without tools; `name` is what errors call it.
  Renderer(const gguf::File& file, const std::string& name, const std::string& source);

  /// Throws Error for a conversation that is malformed, has parts that are no text, or that the template
  /// refuses; and for tools when the template knows none.
  ///
  /// The template gets the arguments of tool calls as objects, or, if it cannot use these, as texts of JSON;
  /// text in several parts as one string unless it handles parts; and empty content where a message has none,
  /// if it would fail or write "None" otherwise.
  Prompt render(const Conversation& conversation) const;

  /// How the template writes the reasoning and the calls of an assistant's message: so will the model.
  const AnswerFormat& answer_format() const { return answer_format_; }

  /// Whether the answer to this prompt begins with reasoning; Open if the template itself wrote <think> last.
  Reasoning reasoning_after(const Prompt& prompt) const;

 private:
  void read_answer_format(std::string_view source);
  const jinja::Template& template_for(const Conversation& conversation) const;
  jinja::Variables variables(const Conversation& conversation) const;
  bool takes_parts(const jinja::Template& chosen) const;

  std::string path_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
  std::vector<jinja::Template> templates_;  ///< the plain one, then, maybe, the one for tools
  AnswerFormat answer_format_;
};

/// One message of the user, rendered: what most callers begin with.
Prompt render_user_message(const gguf::File& file, const std::string& text);

/// The prompt's tokens. Control tokens stand only where the template wrote them. The BOS that the model wants
/// comes first, once, whether or not the template wrote it.
std::vector<tokenizer::Token> encode(const tokenizer::Tokenizer& tokenizer, const Prompt& prompt);

}  // namespace redlite::chat
