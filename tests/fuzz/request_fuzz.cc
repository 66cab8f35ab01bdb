// Bodies of requests, of each API: any bytes make a task, or an ApiError with a status and one line. An
// answer to what made a task is written without a fault, whole and streamed, in valid JSON. The first byte
// chooses the API.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/api.h"

namespace redlite::server {
namespace {

struct Apis {
  std::array<std::unique_ptr<Api>, 4> all = {openai_chat(), openai_completions(), openai_responses(),
                                             anthropic_messages()};
};

void check_error(const Api& api, const ApiError& e) {
  const std::string_view message = e.what();
  RL_CHECK(e.status() >= 400 && e.status() < 500, "{}", e.status());
  RL_CHECK(!message.empty() && message.size() < 2000, "{}", message.size());
  RL_CHECK(Json::parse(to_text(api.error(e)))["error"]["message"].is_string());
}

/// The answer has texts of the kind that a model writes, good and bad.
void tell(AnswerSink& sink) {
  sink.reasoning("r\n");
  const TokenLogprob token{"\xc3", -0.5f, {{"\xc3", -0.5f}, {"x", -1.0f}}};
  sink.logprobs({&token, 1});
  sink.content("\"\xc3\xa9\\");
  sink.tool_call(0, "tool");
  sink.tool_arguments(0, "{\"a\": [");
  Outcome outcome;
  outcome.finish = Finish::ToolCalls;
  sink.finished(outcome);
}

void check_events(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    RL_CHECK(end != std::string_view::npos, "an event without an end");
    const std::string_view event = text.substr(0, end);
    text.remove_prefix(end + 2);
    const size_t at = event.find("data: ");
    RL_CHECK(at == 0 || event.starts_with("event: "), "{}", event);
    const std::string_view data = event.substr(at + 6);
    RL_CHECK(data == "[DONE]" || Json::accept(data), "{}", data);
  }
}

void run(Api& api, std::string_view body) {
  Task task;
  try {
    task = api.parse(parse_body(body), {});
  } catch (const ApiError& e) {
    return check_error(api, e);
  }
  RL_CHECK(task.max_tokens >= 0 && task.stop.size() <= 16 && task.top_logprobs <= 20);
  const Identity identity{"m", 0, [] { return std::string("id"); }};
  WholeAnswer answer;
  tell(answer);
  RL_CHECK(Json::accept(to_text(api.whole(task, identity, answer))));
  std::string text;
  const auto stream = api.stream(task, identity, [&](std::string_view bytes) { text += bytes; });
  stream->started(1);
  tell(*stream);
  check_events(text);
}

}  // namespace
}  // namespace redlite::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const redlite::server::Apis kApis;
  if (size == 0) return 0;
  redlite::server::run(*kApis.all[data[0] % 4],
                       std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
