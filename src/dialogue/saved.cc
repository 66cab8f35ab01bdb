#include "dialogue/saved.h"

#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "base/quote.h"

namespace redlite::dialogue {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;

std::string text_member(const std::string& where, const ordered_json& message, const char* name) {
  const auto value = message.find(name);
  if (value == message.end() || value->is_null()) return "";
  if (!value->is_string()) fail("{}.{}: a string is wanted", where, name);
  return value->get<std::string>();
}

/// A message with what the chat knows of it. `first`: a system message may stand here.
ordered_json checked(const std::string& where, const ordered_json& message, bool first) {
  if (!message.is_object()) fail("{}: an object with role and content is wanted", where);
  const std::string role = text_member(where, message, "role");
  if (message.contains("tool_calls") || role == "tool")
    fail("{}: the chat has no tools; remove what has to do with them", where);
  if (role != "user" && role != "assistant" && !(role == "system" && first))
    fail("{}: the role {} cannot stand here", where, quote(role));
  ordered_json out = {{"role", role}, {"content", text_member(where, message, "content")}};
  if (std::string reasoning = text_member(where, message, "reasoning_content");
      role == "assistant" && !reasoning.empty())
    out["reasoning_content"] = std::move(reasoning);
  return out;
}

}  // namespace

void save_messages(const std::string& path, const std::string& model, const ordered_json& messages) {
  check_output(path);
  const ordered_json json = {{"model", model}, {"messages", messages}};
  const std::string text = json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

ordered_json load_messages(const std::string& path) {
  if (File(path).size() > kMostBytes)
    fail("{}: larger than the {} MiB a conversation may have", path, kMostBytes >> 20);
  const ordered_json json = ordered_json::parse(read_text_file(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail("{}: not JSON; a conversation that /save wrote is wanted", path);
  const bool whole = json.is_object() && json.contains("messages");
  const ordered_json& messages = whole ? json["messages"] : json;
  if (!messages.is_array()) fail("{}: has no array of messages", path);
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    out.push_back(checked(fmt::format("{}: messages[{}]", path, i), messages[i], i == 0));
  return out;
}

}  // namespace redlite::dialogue
