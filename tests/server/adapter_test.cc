// What each API makes of requests and of answers. How real clients take it is tests/clients' to see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api.h"
#include "server/response_store.h"

namespace redlite::server {
namespace {

using testing::HasSubstr;

Task parse(Api& api, const std::string& body) {
  return api.parse(parse_body(body), {});
}

/// Messages of the conversation that a request is turned into, as compact JSON.
std::string messages(Api& api, const std::string& body) {
  return parse(api, body).conversation()->messages.dump();
}

Identity identity() {
  return {"m", 1700000000, [n = 0]() mutable { return std::to_string(n++); }};
}

Outcome outcome(Finish finish) {
  Outcome out;
  out.finish = finish;
  out.usage.prompt_tokens = 10;
  out.usage.cached_tokens = 4;
  out.usage.answer_tokens = 6;
  out.reasoning_tokens = 2;
  return out;
}

/// An answer with everything in it.
void tell(AnswerSink& sink) {
  sink.reasoning("Hm");
  sink.reasoning("m.");
  sink.content("So: ");
  sink.tool_call(0, "one");
  sink.tool_arguments(0, "{\"a\":");
  sink.tool_arguments(0, "1}");
  sink.tool_call(1, "two");
  sink.tool_arguments(1, "{}");
  sink.finished(outcome(Finish::ToolCalls));
}

Json whole(Api& api, const std::string& body) {
  const Task task = parse(api, body);
  WholeAnswer answer;
  tell(answer);
  return api.whole(task, identity(), answer);
}

/// The data of a stream's events, and their names where they have some.
std::vector<std::pair<std::string, Json>> stream(Api& api, const std::string& body) {
  const Task task = parse(api, body);
  const Identity self = identity();
  std::string text;
  const auto out = api.stream(task, self, [&](std::string_view bytes) { text += bytes; });
  out->started(10);
  tell(*out);
  std::vector<std::pair<std::string, Json>> events;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find("\n\n", begin);
    std::string event = text.substr(begin, end - begin), name;
    begin = end + 2;
    if (event.starts_with("event: ")) {
      name = event.substr(7, event.find('\n') - 7);
      event.erase(0, event.find('\n') + 1);
    }
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    events.emplace_back(name, Json::parse(event.substr(6), nullptr, false));
  }
  return events;
}

constexpr const char* kChat =
    R"({"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true},
  "tools":[{"type":"function","function":{"name":"one"}}]})";
constexpr const char* kMessages = R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}],
  "tools":[{"name":"one","input_schema":{"type":"object"}}]})";
constexpr const char* kResponses = R"({"input":"x","tools":[{"type":"function","name":"one"}]})";

TEST(ChatApi, ReadsSettings) {
  const auto api = openai_chat();
  const Task task =
      parse(*api, R"({"messages":[{"role":"user","content":"x"}],"temperature":0.5,"top_p":0.25,"top_k":7,
    "min_p":0.125,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"seed":-3,"stop":["a","b",""],
    "max_tokens":5,"max_completion_tokens":6,"logprobs":true,"top_logprobs":2,"stream":true,"unknown":{}})");
  EXPECT_EQ(task.sampler.temperature, 0.5f);
  EXPECT_EQ(task.sampler.top_p, 0.25f);
  EXPECT_EQ(task.sampler.top_k, 7);
  EXPECT_EQ(task.sampler.min_p, 0.125f);
  EXPECT_EQ(task.sampler.presence_penalty, 1.0f);
  EXPECT_EQ(task.sampler.frequency_penalty, -1.0f);
  EXPECT_EQ(task.sampler.repeat_penalty, 1.5f);
  EXPECT_EQ(task.sampler.seed, static_cast<uint32_t>(-3));
  EXPECT_THAT(task.stop, testing::ElementsAre("a", "b"));
  EXPECT_EQ(task.max_tokens, 6);
  EXPECT_EQ(task.top_logprobs, 2);
  EXPECT_TRUE(task.stream);
  EXPECT_FALSE(task.stream_usage);
}

TEST(ChatApi, TakesWhatOtherServersClientsSend) {
  const auto api = openai_chat();
  const auto with = [&](const std::string& more) {
    return parse(*api, R"({"messages":[{"role":"user","content":"x"}],)" + more + "}");
  };
  EXPECT_EQ(with(R"("max_tokens":-1)").max_tokens, 0);
  EXPECT_THROW(with(R"("max_tokens":0)"), ApiError);
  EXPECT_THROW(with(R"("max_tokens":-2)"), ApiError);
  EXPECT_EQ(with(R"("seed":18446744073709551615)").sampler.seed, 0xffffffffu);
  EXPECT_EQ(with(R"("seed":9223372036854775807)").sampler.seed, 0xffffffffu);
  EXPECT_THROW(with(R"("seed":1.5)"), ApiError);
  EXPECT_THROW(with(R"("seed":1e30)"), ApiError);
}

TEST(ChatApi, SeedsAreRandomUnlessGiven) {
  const auto api = openai_chat();
  const Json body = Json::parse(kChat);
  Defaults fixed;
  fixed.random_seed = false;
  fixed.sampler.seed = 9;
  EXPECT_EQ(api->parse(body, fixed).sampler.seed, 9u);
  EXPECT_NE(api->parse(body, {}).sampler.seed, api->parse(body, {}).sampler.seed);
}

TEST(ChatApi, ReadsMessages) {
  const auto api = openai_chat();
  EXPECT_EQ(
      messages(*api, R"({"messages":[
    {"role":"developer","content":"a"}, {"role":"system","content":[{"type":"text","text":"b"}]},
    {"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}],"name":"me","extra":1},
    {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[
      {"id":"1","type":"function","function":{"name":"one","arguments":"{\"a\":1}"}}]},
    {"role":"tool","tool_call_id":"1","content":"ok"}]})"),
      R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"cd","name":"me"},)"
      R"({"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"one","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"ok","tool_call_id":"1"}])");
}

TEST(ChatApi, ReadsToolsAndFormats) {
  const auto api = openai_chat();
  const std::string user = R"({"messages":[{"role":"user","content":"x"}],)";
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"one"}}],)";
  const Task named =
      parse(*api, user + tools + R"("tool_choice":{"type":"function","function":{"name":"one"}}})");
  EXPECT_EQ(named.tool_use, ToolUse::Named);
  EXPECT_EQ(named.tool_name, "one");
  EXPECT_EQ(named.conversation()->tools[0]["function"]["parameters"]["type"], "object");
  EXPECT_TRUE(parse(*api, user + tools + R"("tool_choice":"none"})").conversation()->tools.is_null());
  EXPECT_EQ(parse(*api, user + tools + R"("tool_choice":"required","parallel_tool_calls":false})")
                .parallel_tool_calls,
            false);
  EXPECT_THROW(parse(*api, user + tools + R"("tool_choice":{"type":"function","function":{"name":"two"}}})"),
               ApiError);
  EXPECT_FALSE(parse(*api, user + R"("tools":[]})").has_tools());
  const Task schema = parse(
      *api, user + R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}}})");
  EXPECT_EQ(schema.format, TextFormat::JsonSchema);
  EXPECT_EQ(schema.schema.dump(), R"({"type":"null"})");
  EXPECT_EQ(parse(*api, user + R"("response_format":{"type":"json_object"}})").format,
            TextFormat::JsonObject);
  EXPECT_EQ(parse(*api, user + R"("reasoning_effort":"none","chat_template_kwargs":{"k":1}})")
                .conversation()
                ->extra.dump(),
            R"({"enable_thinking":false,"k":1})");
}

TEST(ChatApi, WritesAnswers) {
  const auto api = openai_chat();
  const Json answer = whole(*api, kChat);
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["content"], "So: ");
  EXPECT_EQ(message["reasoning_content"], "Hmm.");
  EXPECT_EQ(message["tool_calls"][0]["function"].dump(), R"({"name":"one","arguments":"{\"a\":1}"})");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(
      answer["usage"].dump(),
      R"({"prompt_tokens":10,"completion_tokens":6,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":4},)"
      R"("completion_tokens_details":{"reasoning_tokens":2}})");
}

TEST(ChatApi, Streams) {
  const auto api = openai_chat();
  const auto events = stream(*api, kChat);
  std::vector<std::string> deltas;
  for (const auto& [name, data] : events) {
    if (data.is_object() && !data["choices"].empty()) deltas.push_back(data["choices"][0]["delta"].dump());
  }
  EXPECT_THAT(
      deltas,
      testing::ElementsAre(
          R"({"role":"assistant","content":""})", R"({"reasoning_content":"Hm"})",
          R"({"reasoning_content":"m."})", R"({"content":"So: "})",
          R"({"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"one","arguments":""}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})",
          R"({"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"two","arguments":""}}]})",
          R"({"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]})", "{}"));
  EXPECT_TRUE(events.back().second.is_discarded());  // [DONE]
  EXPECT_EQ(events[events.size() - 2].second["usage"]["total_tokens"], 16);
}

TEST(CompletionsApi, ReadsPrompts) {
  const auto api = openai_completions();
  EXPECT_EQ(std::get<std::string>(parse(*api, R"({"prompt":"a"})").prompt), "a");
  EXPECT_EQ(std::get<std::string>(parse(*api, R"({"prompt":["a"]})").prompt), "a");
  using Tokens = std::vector<model::Token>;
  EXPECT_EQ(std::get<Tokens>(parse(*api, R"({"prompt":[1,2]})").prompt), (Tokens{1, 2}));
  EXPECT_EQ(std::get<Tokens>(parse(*api, R"({"prompt":[[1,2]]})").prompt), (Tokens{1, 2}));
  EXPECT_EQ(parse(*api, R"({"prompt":"a"})").max_tokens, 16);
  for (const char* body :
       {"{}", R"({"prompt":[]})", R"({"prompt":["a","b"]})", R"({"prompt":[1,"a"]})", R"({"prompt":[-1]})",
        R"({"prompt":[1.5]})", R"({"prompt":{}})", R"({"prompt":"a","echo":true})",
        R"({"prompt":"a","suffix":"b"})", R"({"prompt":"a","best_of":2})"})
    EXPECT_THROW(parse(*api, body), ApiError) << body;
}

TEST(MessagesApi, ReadsMessages) {
  const auto api = anthropic_messages();
  EXPECT_EQ(
      messages(*api, R"({"max_tokens":1,"system":[{"type":"text","text":"x-anthropic-billing-header: a=1;"},
      {"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"t"}],"messages":[
    {"role":"user","content":"a"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"x"},{"type":"text","text":"b"},
      {"type":"tool_use","id":"1","name":"one","input":{"k":[1]}},{"type":"tool_use","id":"2","name":"two","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"},
      {"type":"tool_result","tool_use_id":"2","is_error":true,"content":[{"type":"text","text":"y"}]},
      {"type":"text","text":"c"},{"type":"text","text":"d"}]}]})"),
      R"([{"role":"system","content":"s\n\nt"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"b","tool_calls":[{"id":"1","type":"function","function":{"name":"one","arguments":{"k":[1]}}},)"
      R"({"id":"2","type":"function","function":{"name":"two","arguments":{}}}],"reasoning_content":"r"},)"
      R"({"role":"tool","content":"x","tool_call_id":"1"},{"role":"tool","content":"Error: y","tool_call_id":"2"},)"
      R"({"role":"user","content":"c\n\nd"}])");
}

TEST(MessagesApi, AnswersThatAreBegunGoOn) {
  const auto api = anthropic_messages();
  const auto goes_on = [&](const std::string& last, const std::string& more = "") {
    return parse(*api,
                 R"({"max_tokens":1,"messages":[{"role":"user","content":"a"},)" + last + "]" + more + "}")
        .conversation()
        ->continue_last;
  };
  EXPECT_TRUE(goes_on(R"({"role":"assistant","content":"{"})"));
  EXPECT_FALSE(goes_on(R"({"role":"assistant","content":""})"));
  EXPECT_FALSE(
      goes_on(R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"n","input":{}}]})"));
  EXPECT_FALSE(goes_on(R"({"role":"user","content":"b"})"));
  for (const char* format : {R"(,"output_config":{"format":{"type":"json_schema","schema":{}}})",
                             R"(,"output_format":{"type":"json_schema","schema":{}})"})
    EXPECT_THROW(goes_on(R"({"role":"assistant","content":"{"})", format), ApiError);
}

TEST(MessagesApi, WritesAnswers) {
  const auto api = anthropic_messages();
  const Json answer = whole(*api, kMessages);
  EXPECT_EQ(
      answer["content"].dump(),
      R"([{"type":"thinking","thinking":"Hmm.","signature":""},{"type":"text","text":"So: "},)"
      R"({"type":"tool_use","id":"toolu_0","name":"one","input":{"a":1}},{"type":"tool_use","id":"toolu_1","name":"two","input":{}}])");
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  EXPECT_EQ(answer["usage"]["input_tokens"], 6);
  EXPECT_EQ(answer["usage"]["cache_read_input_tokens"], 4);
}

TEST(MessagesApi, ArgumentsThatAreNoJsonAreKept) {
  const auto api = anthropic_messages();
  const Task task = parse(*api, kMessages);
  WholeAnswer answer;
  answer.tool_call(0, "one");
  answer.tool_arguments(0, "{\"a\": oops");
  answer.finished(outcome(Finish::ToolCalls));
  EXPECT_EQ(api->whole(task, identity(), answer)["content"][0]["input"].dump(),
            R"({"invalid_json":"{\"a\": oops"})");
}

TEST(MessagesApi, Streams) {
  const auto api = anthropic_messages();
  const auto events = stream(*api, kMessages);
  std::vector<std::string> told;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data["type"], name);
    told.push_back(name + (data.contains("index") ? data["index"].dump() : ""));
  }
  EXPECT_THAT(told,
              testing::ElementsAre("message_start", "ping", "content_block_start0", "content_block_delta0",
                                   "content_block_delta0", "content_block_delta0", "content_block_stop0",
                                   "content_block_start1", "content_block_delta1", "content_block_stop1",
                                   "content_block_start2", "content_block_delta2", "content_block_delta2",
                                   "content_block_stop2", "content_block_start3", "content_block_delta3",
                                   "content_block_stop3", "message_delta", "message_stop"));
  EXPECT_EQ(events[events.size() - 2].second["delta"].dump(),
            R"({"stop_reason":"tool_use","stop_sequence":null})");
}

TEST(ResponsesApi, ReadsItems) {
  const auto api = openai_responses();
  EXPECT_EQ(
      messages(*api, R"({"instructions":"i","input":[
    {"role":"developer","content":"d"}, {"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
    {"type":"reasoning","id":"x","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},
    {"type":"function_call","call_id":"1","name":"one","arguments":"{}"},
    {"type":"function_call","call_id":"2","name":"two","arguments":"{}"},
    {"type":"function_call_output","call_id":"1","output":"x"},
    {"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"y"}]},
    {"role":"assistant","content":[{"type":"output_text","text":"b"}]}]})"),
      R"([{"role":"system","content":"i\n\nd"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"","reasoning_content":"r","tool_calls":[)"
      R"({"id":"1","type":"function","function":{"name":"one","arguments":"{}"}},)"
      R"({"id":"2","type":"function","function":{"name":"two","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"x","tool_call_id":"1"},{"role":"tool","content":"y","tool_call_id":"2"},)"
      R"({"role":"assistant","content":"b"}])");
}

TEST(ResponsesApi, RemembersConversationsWithoutInstructions) {
  const auto api = openai_responses();
  const Json first =
      whole(*api, R"({"input":"x","instructions":"i","tools":[{"type":"function","name":"one"}]})");
  const std::string next =
      fmt::format(R"({{"input":"y","instructions":"j","previous_response_id":{}}})", first["id"].dump());
  EXPECT_EQ(
      messages(*api, next),
      R"([{"role":"system","content":"j"},{"role":"user","content":"x"},{"role":"assistant","content":"So: ",)"
      R"("reasoning_content":"Hmm.","tool_calls":[{"id":"call_4","type":"function","function":{"name":"one","arguments":"{\"a\":1}"}},)"
      R"({"id":"call_6","type":"function","function":{"name":"two","arguments":"{}"}}]},{"role":"user","content":"y"}])");
  EXPECT_THROW(parse(*openai_responses(), next), ApiError);
}

TEST(ResponsesApi, StreamsWhatItThenRepeats) {
  const auto api = openai_responses();
  const auto events = stream(*api, kResponses);
  int number = 0;
  std::vector<std::string> told;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], number++);
    told.push_back(name.substr(9));
  }
  EXPECT_THAT(told,
              testing::ElementsAre("created", "in_progress", "output_item.added", "reasoning_text.delta",
                                   "reasoning_text.delta", "reasoning_text.done", "output_item.done",
                                   "output_item.added", "content_part.added", "output_text.delta",
                                   "output_text.done", "content_part.done", "output_item.done",
                                   "output_item.added", "function_call_arguments.delta",
                                   "function_call_arguments.delta", "function_call_arguments.done",
                                   "output_item.done", "output_item.added", "function_call_arguments.delta",
                                   "function_call_arguments.done", "output_item.done", "completed"));
  const Json& response = events.back().second["response"];
  const Json same = whole(*api, kResponses);
  EXPECT_EQ(response["output"].size(), 4u);
  EXPECT_EQ(response["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(response["usage"], same["usage"]);
  EXPECT_EQ(response["output"][1]["content"], same["output"][1]["content"]);
}

TEST(ResponseStore, ForgetsTheOldestFirst) {
  ResponseStore store(2000);
  const Json messages = Json::array({std::string(500, 'a')});
  store.put("1", messages);
  store.put("2", messages);
  EXPECT_TRUE(store.get("1"));  // so that 2 is the oldest
  store.put("3", messages);
  EXPECT_TRUE(store.get("1"));
  EXPECT_FALSE(store.get("2"));
  EXPECT_TRUE(store.get("3"));
  EXPECT_LE(store.bytes(), 2000u);
  store.put("big", Json::array({std::string(5000, 'a')}));
  EXPECT_FALSE(store.get("big"));
  EXPECT_TRUE(store.get("3"));
}

TEST(Errors, HaveEachApisShape) {
  const ApiError full = ApiError::try_again(429, "full", 3);
  EXPECT_EQ(
      openai_chat()->error(full).dump(),
      R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}})");
  EXPECT_EQ(anthropic_messages()->error(full).dump(),
            R"({"type":"error","error":{"type":"rate_limit_error","message":"full"}})");
  EXPECT_EQ(openai_responses()->error(ApiError::too_long("long"))["error"]["code"],
            "context_length_exceeded");
  EXPECT_EQ(openai_chat()->error(ApiError(400, "x", "messages[0]"))["error"]["param"], "messages[0]");
}

}  // namespace
}  // namespace redlite::server
