// JSON schemas: any text that is JSON is a schema whose answers can be written, or a one-line Error. A walk
// through the grammar finds a way on at every byte, and JSON at its end.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "constrain/automaton.h"
#include "constrain/constrain.h"
#include "constrain/grammar.h"

namespace redlite::constrain {
namespace {

constexpr size_t kMaxAnswer = 400;

void walk(const std::shared_ptr<const Grammar>& grammar, std::string_view choices) {
  Automaton automaton(grammar);
  Automaton::Config config = automaton.start();
  std::string text;
  uint32_t random = 1;
  for (const char c : choices) random = random * 31 + static_cast<uint8_t>(c);
  while (text.size() < kMaxAnswer) {
    if (config == Automaton::kDead) return;  // only at the start: too many alternatives
    if (automaton.overflown()) config = automaton.restart(config);
    if (automaton.may_end(config) && (random >> 28) < 8) {
      RL_CHECK(!nlohmann::ordered_json::parse(text, nullptr, false).is_discarded(), "{}", text);
      return;
    }
    // A byte from a place of the configuration, or the one that closes what is open.
    Automaton::Config next = Automaton::kDead;
    for (int trial = 0; trial < 600 && next == Automaton::kDead; ++trial) {
      random = random * 1664525 + 1013904223;
      constexpr std::string_view kUsual = "\"}]{[:,0 1atrue";
      const auto byte = trial < 300 && (random & 1) != 0
                            ? static_cast<uint8_t>(kUsual[(random >> 16) % kUsual.size()])
                        : trial < 300 ? static_cast<uint8_t>(random >> 24)
                                      : static_cast<uint8_t>(trial - 300);
      next = automaton.next(config, byte);
      if (next != Automaton::kDead) text += static_cast<char>(byte);
    }
    RL_CHECK(next != Automaton::kDead || automaton.may_end(config), "no way on behind {}", text);
    if (next == Automaton::kDead) return;
    config = next;
  }
}

void run(std::string_view data) {
  const nlohmann::ordered_json schema =
      nlohmann::ordered_json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return;
  try {
    walk(json_schema(schema, chat::Reasoning::None), data);
  } catch (const Error& e) {
    const std::string_view message = e.what();
    RL_CHECK(message.starts_with("schema"), "{}", message);
    RL_CHECK(message.find('\n') == std::string_view::npos, "{}", message);
  }
  try {
    nlohmann::ordered_json tools = nlohmann::ordered_json::array();
    tools.push_back({{"name", "f"}, {"parameters", schema}});
    tool_calls(tools, {.strict = true}, chat::ToolFormat::Xml, chat::Reasoning::None);
  } catch (const Error& e) {
    RL_CHECK(std::string_view(e.what()).starts_with("tools"), "{}", e.what());
  }
}

}  // namespace
}  // namespace redlite::constrain

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::constrain::run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
