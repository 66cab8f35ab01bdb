// Chat templates: any text is a template that renders, or throws a one-line Error that says where. What came
// from outside stays marked: the bytes that the template wrote itself never come from the conversation.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/jinja/template.h"

namespace redlite::chat {
namespace {

jinja::Variables conversation() {
  jinja::Variables out;
  out.content = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "@\u00e9@"}, {"role": "user", "content": "@ @"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "@", "arguments": {"@": [1, 2.5, null]}}}]},
                 {"role": "tool", "content": "@"}],
    "tools": [{"type": "function", "function": {"name": "@", "parameters": {"properties": {"@": {"enum": ["@", 1]}}}}}],
    "add_generation_prompt": true})");
  out.trusted = {{"bos_token", "<s>"}};
  out.steps = 100'000;
  return out;
}

void check(const jinja::Text& text, bool template_has_at) {
  size_t end = 0;
  std::string written;
  for (const auto& range : text.content()) {
    RL_CHECK(range.begin < range.end && range.end <= text.size() && (range.begin > end || end == 0),
             "ranges");
    written += text.bytes().substr(end, range.begin - end);
    end = range.end;
  }
  written += text.bytes().substr(end);
  // Every text of the conversation but its roles and fixed keys is of this character.
  RL_CHECK(template_has_at || written.find('@') == std::string::npos, "the mark of a content was lost");
}

void run(std::string_view source) {
  static const jinja::Variables kConversation = conversation();
  try {
    const jinja::Template parsed("t", source);
    // An escape may write the character, too, and numbers may become it.
    const bool has_at = source.find_first_of("@\\") != std::string_view::npos;
    check(parsed.render(kConversation), has_at);
  } catch (const Error& e) {
    const std::string_view message = e.what();
    RL_CHECK(message.starts_with("t, line ") || message.starts_with("t: "), "{}", message);
    RL_CHECK(message.find('\n') == std::string_view::npos, "{}", message);
  }
}

}  // namespace
}  // namespace redlite::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::chat::run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
