// Answers: any text, cut anywhere, gives the same deltas as in one piece; nothing of it is lost without a
// reason, and arguments in the XML format are JSON as long as the call is complete.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/answer_parser.h"

namespace redlite::chat {
namespace {

const nlohmann::ordered_json& tools() {
  static const nlohmann::ordered_json kTools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {
      "a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["array", "null"]}, "d": {}}}}},
    {"name": "g"}])");
  return kTools;
}

struct Parsed {
  Answer answer;
  bool unfinished;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view text, size_t piece, Reasoning reasoning, bool cut_off, bool with_tools) {
  AnswerParser parser(ToolFormat::Xml, reasoning, with_tools ? tools() : nlohmann::ordered_json());
  Answer out;
  const auto take = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) {
      RL_CHECK(!delta.text.empty() && (delta.kind != Delta::Kind::Arguments || !out.calls.empty()));
      out.add(delta);
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) take(parser.push(text.substr(at, piece)));
  take(parser.finish(cut_off));
  return {out, parser.unfinished_call()};
}

void run(uint8_t choices, std::string_view text) {
  const auto reasoning = static_cast<Reasoning>(choices % 3);
  const bool cut_off = (choices & 4) != 0, with_tools = (choices & 8) != 0;
  const size_t piece = 1 + choices / 16;
  const Parsed whole = parse(text, text.size() + 1, reasoning, cut_off, with_tools);
  RL_CHECK(parse(text, piece, reasoning, cut_off, with_tools) == whole, "cut into pieces of {}", piece);
  if (!with_tools) RL_CHECK(whole.answer.calls.empty());
  if (!with_tools && reasoning == Reasoning::None) RL_CHECK(whole.answer.text == text);
}

}  // namespace
}  // namespace redlite::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0)
    redlite::chat::run(data[0], std::string_view(reinterpret_cast<const char*>(data + 1), size - 1));
  return 0;
}
