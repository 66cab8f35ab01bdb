#include "chat/chat.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::chat {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTemplateKey = "tokenizer.chat_template";
constexpr const char* kToolTemplateKey = "tokenizer.chat_template.tool_use";

/// For models made for ChatML whose file has no template: the messages given and no other.
constexpr std::string_view kChatml = R"({%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant'] or message.tool_calls -%}
{{- raise_exception('the model has no chat template of its own, and ChatML has no ' ~ message.role ~ ' messages or tool calls') -}}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})";

const std::vector<std::string>* token_texts(const gguf::File& file) {
  const gguf::Value* value = file.find_value("tokenizer.ggml.tokens");
  const auto* array = value ? std::get_if<std::shared_ptr<const gguf::Array>>(value) : nullptr;
  return array && *array ? std::get_if<std::vector<std::string>>(&(*array)->values) : nullptr;
}

/// The variables that transformers sets for a tokenizer's special tokens.
std::vector<std::pair<std::string, std::string>> special_tokens(const gguf::File& file) {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
  };
  std::vector<std::pair<std::string, std::string>> out;
  const std::vector<std::string>* texts = token_texts(file);
  for (const auto& [variable, key] : kVariables) {
    const std::optional<uint64_t> id = file.get_uint(key);
    if (id && texts && *id < texts->size()) out.emplace_back(variable, (*texts)[*id]);
  }
  return out;
}

bool has_chatml_tokens(const gguf::File& file) {
  const std::vector<std::string>* texts = token_texts(file);
  return texts && std::find(texts->begin(), texts->end(), "<|im_start|>") != texts->end() &&
         std::find(texts->begin(), texts->end(), "<|im_end|>") != texts->end();
}

/// "messages[3].content"
std::string place(size_t i, std::string_view member = "") {
  return fmt::format("messages[{}]{}{}", i, member.empty() ? "" : ".", member);
}

void check_parts(const ordered_json& parts, size_t i) {
  for (const ordered_json& part : parts) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      fail("{}: a part is an object with a type", place(i, "content"));
    }
    if (part["type"] != "text") {
      fail("{}: a part of type {}; this program reads text only", place(i, "content"),
           quote(part["type"].get_ref<const std::string&>()));
    }
    if (!part.contains("text") || !part["text"].is_string())
      fail("{}: a part without text", place(i, "content"));
  }
}

std::string join_parts(const ordered_json& parts) {
  std::string out;
  for (const ordered_json& part : parts) {
    if (&part != &parts.front()) out += "\n";
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

enum class ArgumentsAs { Objects, Texts };

/// Arguments of tool calls are a text of JSON in the API. Most templates are written for objects, some for
/// texts. A text that is no JSON object stays as it is; true if anything changed.
bool convert_arguments(ordered_json& messages, ArgumentsAs wanted) {
  bool changed = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto calls = messages[i].find("tool_calls");
    if (calls == messages[i].end() || calls->is_null()) continue;
    if (!calls->is_array()) fail("{}: an array is wanted", place(i, "tool_calls"));
    for (ordered_json& call : *calls) {
      if (!call.is_object()) fail("{}: a call is an object", place(i, "tool_calls"));
      ordered_json& function =
          call.contains("function") && call["function"].is_object() ? call["function"] : call;
      const auto arguments = function.find("arguments");
      if (arguments == function.end()) continue;
      if (wanted == ArgumentsAs::Texts && arguments->is_object()) {
        *arguments = arguments->dump();
        changed = true;
      } else if (wanted == ArgumentsAs::Objects && arguments->is_string()) {
        ordered_json parsed = ordered_json::parse(arguments->get_ref<const std::string&>(), nullptr, false);
        if (!parsed.is_object()) continue;
        *arguments = std::move(parsed);
        changed = true;
      }
    }
  }
  return changed;
}

/// Checks what every template relies on; true if a message's text is in several parts.
bool prepare(ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) fail("a conversation needs at least one message");
  bool several = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    ordered_json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      fail("{}: a message is an object with a role", place(i));
    }
    const auto content = message.find("content");
    if (content == message.end()) continue;
    if (content->is_array()) {
      check_parts(*content, i);
      if (content->size() <= 1) {
        *content = join_parts(*content);
      } else {
        several = true;
      }
    } else if (!content->is_string() && !content->is_null()) {
      fail("{}: a string, an array of parts or null is wanted", place(i, "content"));
    }
  }
  return several;
}

/// From a conversation with a call in it. None also where the template refuses one.
ToolFormat probe_tool_format(const Renderer& renderer) {
  constexpr std::string_view kName = "redlite_probe";
  Conversation probe;
  probe.now = 0;
  probe.messages = ordered_json::parse(R"([{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "tool_calls": [{"id": "call00000", "type": "function",
      "function": {"name": "redlite_probe", "arguments": {"c": "d"}}}]},
    {"role": "tool", "name": "redlite_probe", "tool_call_id": "call00000", "content": "e"}])");
  probe.tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "redlite_probe",
    "description": "f", "parameters": {"type": "object", "properties": {"c": {"type": "string"}}}}}])");
  std::string text;
  try {
    text = renderer.render(probe).text;
  } catch (const Error&) {
    return ToolFormat::None;
  }
  for (size_t at = text.find(kToolCallBegin); at != std::string::npos;
       at = text.find(kToolCallBegin, at + 1)) {
    const size_t body = text.find_first_not_of(" \n", at + kToolCallBegin.size());
    if (body == std::string::npos) break;
    const std::string_view call = std::string_view(text).substr(body, text.find(kToolCallEnd, body) - body);
    if (call.find(kName) == std::string_view::npos) continue;
    if (call.starts_with("<function=")) return ToolFormat::Xml;
    if (call.starts_with("{")) return ToolFormat::Json;
  }
  return ToolFormat::None;
}

}  // namespace

Renderer::Renderer(const gguf::File& file) : path_(file.path()), special_tokens_(special_tokens(file)) {
  const std::optional<std::string> source = file.get_string(kTemplateKey);
  if (!source && !has_chatml_tokens(file)) {
    fail("{}: {} is missing: this model was not made for chat; give it a plain prompt", path_, kTemplateKey);
  }
  const auto add = [&](const char* key, std::string_view text) {
    templates_.emplace_back(fmt::format("{}: {}", path_, key), text);
  };
  add(source ? kTemplateKey : "ChatML", source ? std::string_view(*source) : kChatml);
  if (const auto for_tools = file.get_string(kToolTemplateKey)) add(kToolTemplateKey, *for_tools);
  read_answer_format(source ? *source : "");
}

Renderer::Renderer(const gguf::File& file, const std::string& name, const std::string& source)
    : path_(file.path()), special_tokens_(special_tokens(file)) {
  templates_.emplace_back(name, source);
  read_answer_format(source);
}

void Renderer::read_answer_format(std::string_view source) {
  answer_format_.reasoning = source.find(kThinkEnd) != std::string_view::npos;
  answer_format_.tools = probe_tool_format(*this);
}

Reasoning Renderer::reasoning_after(const Prompt& prompt) const {
  if (!answer_format_.reasoning) return Reasoning::None;
  if (prompt.ends_in_content()) return Reasoning::None;
  // What a conversation says opens nothing.
  const size_t written = prompt.content.empty() ? 0 : prompt.content.back().end;
  std::string_view last = std::string_view(prompt.text).substr(written);
  if (const size_t turn = last.rfind("<|im_start|>"); turn != std::string_view::npos)
    last.remove_prefix(turn);
  const size_t begin = last.rfind(kThinkBegin);
  const size_t end = last.rfind(kThinkEnd);
  if (begin != std::string_view::npos && (end == std::string_view::npos || end < begin))
    return Reasoning::Open;
  return end == std::string_view::npos ? Reasoning::Possible : Reasoning::None;
}

const jinja::Template& Renderer::template_for(const Conversation& conversation) const {
  const bool tools = conversation.tools.is_array() && !conversation.tools.empty();
  const jinja::Template& chosen = tools ? templates_.back() : templates_.front();
  if (tools && !chosen.reads("tools")) {
    fail("{}: the model's chat template knows no tools; leave them out of the request", path_);
  }
  return chosen;
}

jinja::Variables Renderer::variables(const Conversation& conversation) const {
  jinja::Variables out;
  if (!conversation.extra.is_object()) fail("the extra variables of a template are an object");
  out.content = conversation.extra;
  out.content["messages"] = conversation.messages;
  if (conversation.tools.is_array() && !conversation.tools.empty()) {
    out.content["tools"] = conversation.tools;
  } else if (conversation.tools.is_null() || conversation.tools.empty()) {
    out.content["tools"] = nullptr;
  } else {
    fail("tools: an array is wanted");
  }
  out.content["add_generation_prompt"] = conversation.add_generation_prompt && !conversation.continue_last;
  for (const auto& [name, text] : special_tokens_) out.content.erase(name);
  out.trusted = special_tokens_;
  out.now = conversation.now;
  return out;
}

bool Renderer::takes_parts(const jinja::Template& chosen) const {
  const auto probe = [&](ordered_json content) {
    Conversation one;
    one.messages = {{{"role", "user"}, {"content", std::move(content)}}};
    one.now = 0;
    return chosen.render(variables(one)).bytes();
  };
  try {
    const ordered_json parts = {{{"type", "text"}, {"text", "Hello."}}};
    return probe(parts) == probe("Hello.");
  } catch (const Error&) {
    return false;
  }
}

namespace {

/// Empty text for the content of messages that have none; false if all have some.
bool fill_contents(ordered_json& messages) {
  bool changed = false;
  for (ordered_json& message : messages) {
    if (message.contains("content") && !message["content"].is_null()) continue;
    message["content"] = "";
    changed = true;
  }
  return changed;
}

size_t count_none(const jinja::Text& text) {
  size_t n = 0;
  const std::string& s = text.bytes();
  for (size_t at = s.find("None"); at != std::string::npos; at = s.find("None", at + 4)) ++n;
  return n;
}

/// With the arguments of calls as objects, or else as texts. Throws what the first way threw.
jinja::Text render_calls(const jinja::Template& chosen, const jinja::Variables& given) {
  try {
    return chosen.render(given);
  } catch (const Error&) {
    jinja::Variables with_texts = given;
    if (!convert_arguments(with_texts.content["messages"], ArgumentsAs::Texts)) throw;
    try {
      return chosen.render(with_texts);
    } catch (const Error&) {
    }
    throw;
  }
}

/// A message without content is given to the template as such, which some want; but where that fails, or
/// comes out as the word None, its content is empty.
jinja::Text render_as_needed(const jinja::Template& chosen, const jinja::Variables& given) {
  jinja::Variables filled = given;
  if (!fill_contents(filled.content["messages"])) return render_calls(chosen, given);
  std::optional<jinja::Text> with_none;
  try {
    with_none = render_calls(chosen, given);
  } catch (const Error&) {
    return render_calls(chosen, filled);
  }
  if (count_none(*with_none) == 0) return *with_none;
  try {
    jinja::Text with_empty = render_calls(chosen, filled);
    if (count_none(with_empty) < count_none(*with_none)) return with_empty;
  } catch (const Error&) {
  }
  return *with_none;
}

/// Ends a prompt behind the content of its last message.
void cut_behind_content(Prompt& prompt, const ordered_json& last) {
  const ordered_json& content = last["content"];
  std::string wanted = content.is_string() ? content.get<std::string>() : "";
  const auto trim = [](std::string& text) { text.erase(text.find_last_not_of(" \t\r\n") + 1); };
  trim(wanted);
  if (!prompt.content.empty()) prompt.text.resize(prompt.content.back().end);
  trim(prompt.text);
  while (!prompt.content.empty() && prompt.content.back().begin >= prompt.text.size())
    prompt.content.pop_back();
  if (wanted.empty() || prompt.content.empty() || !prompt.text.ends_with(wanted))
    fail("the last message cannot be gone on with: it has no text, or the model's chat template alters it");
  prompt.content.back().end = std::min(prompt.content.back().end, prompt.text.size());
}

}  // namespace

Prompt Renderer::render(const Conversation& conversation) const {
  const jinja::Template& chosen = template_for(conversation);
  jinja::Variables given = variables(conversation);
  ordered_json& messages = given.content["messages"];
  if (prepare(messages) && !takes_parts(chosen)) {
    for (ordered_json& message : messages)
      if (message.contains("content") && message["content"].is_array())
        message["content"] = join_parts(message["content"]);
  }
  convert_arguments(messages, ArgumentsAs::Objects);
  jinja::Text text = render_as_needed(chosen, given);
  Prompt prompt;
  prompt.content = text.release_content();
  prompt.text = text.release_bytes();
  if (conversation.continue_last) cut_behind_content(prompt, messages.back());
  return prompt;
}

Prompt render_user_message(const gguf::File& file, const std::string& text) {
  Conversation conversation;
  conversation.messages.push_back({{"role", "user"}, {"content", text}});
  return Renderer(file).render(conversation);
}

std::vector<tokenizer::Token> encode(const tokenizer::Tokenizer& tokenizer, const Prompt& prompt) {
  std::vector<tokenizer::Token> tokens = tokenizer.encode(prompt.text, prompt.content);
  const tokenizer::Token bos = tokenizer.bos();
  if (bos >= 0 && (tokens.empty() || tokens.front() != bos)) tokens.insert(tokens.begin(), bos);
  return tokens;
}

}  // namespace redlite::chat
