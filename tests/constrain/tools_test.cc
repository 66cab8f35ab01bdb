#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/answer_parser.h"
#include "constrain/constrain.h"
#include "sampling.h"
#include "validator.h"

namespace redlite::constrain {
namespace {

using chat::Reasoning;
using chat::ToolFormat;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

const ordered_json& tools() {
  static const ordered_json kTools = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "unit": {"enum": ["C", "F"]}, "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
      "short": {"type": "string", "maxLength": 4}},
      "required": ["city", "days"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "plot", "parameters": {"$ref": "#/$defs/plot", "$defs": {
      "point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
      "plot": {"type": "object", "properties": {"points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "title": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "grid": {"type": "boolean"}},
        "required": ["points"]}}}}}])");
  return kTools;
}

const ordered_json& schema_of(const std::string& name) {
  static const ordered_json kNone = {{"type", "object"}};
  for (const ordered_json& tool : tools())
    if (tool["function"]["name"] == name && tool["function"].contains("parameters"))
      return tool["function"]["parameters"];
  return kNone;
}

chat::Answer parse(ToolFormat format, Reasoning reasoning, const std::string& text,
                   bool text_or_calls = false) {
  chat::AnswerParser parser(format, reasoning, tools(), text_or_calls);
  chat::Answer out;
  // As in a server: what is no UTF-8 never reaches the parser.
  tokenizer::StreamDecoder decoder(TestVocabulary::get().tokenizer());
  const std::string decoded = decoder.push_bytes(text) + decoder.finish();
  for (const chat::Delta& delta : parser.push(decoded)) out.add(delta);
  for (const chat::Delta& delta : parser.finish()) out.add(delta);
  EXPECT_FALSE(parser.unfinished_call()) << text;
  return out;
}

void check_calls(const chat::Answer& answer, const std::string& text) {
  for (const chat::Answer::Call& call : answer.calls) {
    const ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << text;
    const ordered_json& schema = schema_of(call.name);
    ASSERT_TRUE(Validator(schema).valid(arguments)) << call.arguments << "\n" << text;
  }
}

class Tools : public ::testing::TestWithParam<ToolFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, Tools, ::testing::Values(ToolFormat::Json, ToolFormat::Xml),
                         [](const auto& of) { return of.param == ToolFormat::Json ? "Json" : "Xml"; });

TEST_P(Tools, AreCalledAsTheirSchemasSay) {
  for (const bool parallel : {false, true}) {
    const auto grammar = tool_calls(tools(), {.required = true, .parallel = parallel, .strict = true},
                                    GetParam(), Reasoning::None);
    std::mt19937 random(3);
    std::set<std::string> called;
    size_t most = 0;
    for (int i = 0; i < 200; ++i) {
      const Sample s = sample(grammar, random, 60, {"\n</parameter>\n"});
      ASSERT_TRUE(s.ended) << s.text;
      const chat::Answer answer = parse(GetParam(), Reasoning::None, s.text);
      ASSERT_EQ(answer.text, "") << s.text;
      ASSERT_GE(answer.calls.size(), 1u) << s.text;
      most = std::max(most, answer.calls.size());
      for (const auto& call : answer.calls) called.insert(call.name);
      check_calls(answer, s.text);
    }
    EXPECT_EQ(called.size(), 3u);
    EXPECT_EQ(most > 1, parallel);
  }
}

TEST_P(Tools, AreLimitedToTheOneThatIsNamed) {
  const auto grammar = tool_calls(tools(), {.parallel = false, .name = "plot"}, GetParam(), Reasoning::Open);
  std::mt19937 random(4);
  for (int i = 0; i < 50; ++i) {
    const Sample s = sample(grammar, random, 60, {"</think>", "\n</parameter>\n"});
    ASSERT_TRUE(s.ended) << s.text;
    const chat::Answer answer = parse(GetParam(), Reasoning::Open, s.text);
    ASSERT_EQ(answer.calls.size(), 1u) << s.text;
    EXPECT_EQ(answer.calls[0].name, "plot");
    check_calls(answer, s.text);
  }
  EXPECT_THROW(tool_calls(tools(), {.name = "none"}, GetParam(), Reasoning::None), Error);
}

TEST_P(Tools, MayBeLeftAlone) {
  const auto grammar = tool_calls(tools(), {.required = false}, GetParam(), Reasoning::None);
  EXPECT_TRUE(accepts(grammar, ""));
  EXPECT_TRUE(accepts(grammar, "Hello <tool_cal> \xff"));
  const std::string call = GetParam() == ToolFormat::Json
                               ? "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
                               : "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  EXPECT_TRUE(accepts(grammar, "Let me see.\n\n" + call + "\n" + call));
  EXPECT_FALSE(accepts(grammar, "Let me see.\n\n<tool_call>"));
  EXPECT_FALSE(accepts(grammar, "<tool_call>\n{\"name\": \"other\""));
}

TEST_P(Tools, MayGiveWayToJson) {
  const ordered_json schema = ordered_json::parse(
      R"({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]})");
  const auto grammar = tool_calls(tools(), {.required = false, .text = schema}, GetParam(), Reasoning::None);
  std::mt19937 random(6);
  int called = 0, written = 0;
  for (int i = 0; i < 100; ++i) {
    const Sample s = sample(grammar, random, 60, {"\n</parameter>\n"});
    ASSERT_TRUE(s.ended) << s.text;
    const chat::Answer answer = parse(GetParam(), Reasoning::None, s.text, /*text_or_calls=*/true);
    if (answer.calls.empty()) {
      ++written;
      ASSERT_TRUE(Validator(schema).valid(ordered_json::parse(answer.text))) << s.text;
    } else {
      ++called;
      ASSERT_EQ(answer.text, "") << s.text;
      check_calls(answer, s.text);
    }
  }
  EXPECT_GT(called, 10);
  EXPECT_GT(written, 10);
  // What stands in a string is no call.
  const std::string tag = R"({"note": "<tool_call>{\"name\": \"now\"}</tool_call>"})";
  EXPECT_TRUE(accepts(grammar, tag));
  EXPECT_EQ(parse(GetParam(), Reasoning::None, tag, true).text, tag);
  EXPECT_FALSE(accepts(grammar, "Well, {\"note\": \"\"}"));
  EXPECT_FALSE(accepts(grammar, ""));
  EXPECT_THROW(tool_calls(tools(), {.required = false, .text = ordered_json{{"not", true}}}, GetParam(),
                          Reasoning::None),
               Error);
}

TEST_P(Tools, WithoutAUsableSchemaTakeAnything) {
  const ordered_json odd = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "not": {}}}},
    {"type": "function", "function": {"name": "b", "parameters": {"$ref": "#"}}},
    {"type": "function", "function": {"name": "c", "parameters": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}}}])");
  const std::string a =
      GetParam() == ToolFormat::Json
          ? "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"y\": 1}}\n</tool_call>"
          : "<tool_call>\n<function=a>\n<parameter=y>\n1\n</parameter>\n</function>\n</tool_call>";
  std::string b = a, c = a;
  b[b.find(GetParam() == ToolFormat::Json ? "\"a\"" : "=a") + 1] = 'b';
  c[c.find(GetParam() == ToolFormat::Json ? "\"a\"" : "=a") + 1] = 'c';
  const auto grammar = tool_calls(odd, {}, GetParam(), Reasoning::None);
  EXPECT_TRUE(accepts(grammar, a));
  EXPECT_TRUE(accepts(grammar, b));
  EXPECT_FALSE(accepts(grammar, c));
  try {
    tool_calls(odd, {.strict = true}, GetParam(), Reasoning::None);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "tools[0].function.parameters#/not: this keyword is not supported");
  }
}

TEST_P(Tools, MustBeTools) {
  for (const char* bad :
       {"[]", "null", "{}", "[1]", R"([{"type": "function"}])", R"([{"function": {"name": ""}}])"})
    EXPECT_THROW(tool_calls(ordered_json::parse(bad), {}, GetParam(), Reasoning::None), Error) << bad;
}

}  // namespace
}  // namespace redlite::constrain
