#include "chat/answer_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "../gguf/raw_gguf.h"
#include "../tokenizer/small_vocabulary.h"
#include "chat/chat.h"
#include "chat/tool_schemas.h"

namespace redlite::chat {
namespace {

using nlohmann::ordered_json;
using Call = Answer::Call;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ordered_json& tools() {
  static const ordered_json kTools = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "array"},
      "options": {"$ref": "#/$defs/options"}, "mode": {"type": ["integer", "null"]}, "ratio": {"type": "number"},
      "force": {"type": "boolean"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "any": {}},
      "$defs": {"options": {"type": "object"}}}}}])");
  return kTools;
}

struct Parsed {
  std::vector<Delta> deltas;  ///< neighbours of one kind joined
  Answer answer;
  bool unfinished = false;

  bool operator==(const Parsed&) const = default;
};

struct Given {
  Reasoning reasoning = Reasoning::None;
  bool with_tools = true;
  bool cut_off = false;
};

Parsed parse_pieces(const std::vector<std::string_view>& pieces, const Given& given) {
  AnswerParser parser(ToolFormat::Json, given.reasoning, given.with_tools ? tools() : ordered_json());
  Parsed out;
  const auto take = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) {
      EXPECT_FALSE(delta.text.empty());
      out.answer.add(delta);
      if (!out.deltas.empty() && out.deltas.back().kind == delta.kind && delta.kind != Delta::Kind::Call) {
        out.deltas.back().text += delta.text;
      } else {
        out.deltas.push_back(delta);
      }
    }
  };
  for (const std::string_view piece : pieces) take(parser.push(piece));
  take(parser.finish(given.cut_off));
  out.unfinished = parser.unfinished_call();
  return out;
}

/// Parses a text whole, byte by byte, in two pieces cut anywhere, and cut at random: always the same.
Parsed parse(std::string_view text, const Given& given = {}) {
  const Parsed whole = parse_pieces({text}, given);
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  EXPECT_EQ(parse_pieces(bytes, given), whole) << text;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(parse_pieces({text.substr(0, cut), text.substr(cut)}, given), whole) << text << " at " << cut;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 12;
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    EXPECT_EQ(parse_pieces(pieces, given), whole) << text;
  }
  return whole;
}

Answer answer(std::string_view text, const Given& given = {}) {
  return parse(text, given).answer;
}

std::vector<Call> calls(std::string_view text) {
  const Parsed parsed = parse(text);
  EXPECT_EQ(parsed.answer.text, "") << text;
  return parsed.answer.calls;
}

TEST(AnswerParser, LeavesPlainTextAlone) {
  EXPECT_EQ(answer("  a < b </think> <tool_cal\n\n").text, "  a < b </think> <tool_cal\n\n");
  EXPECT_EQ(answer("").text, "");
  EXPECT_EQ(answer("<think>x</think>").text, "<think>x</think>");
}

TEST(AnswerParser, ParsesNothingWithoutTools) {
  const std::string text =
      "```\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>\n```\n";
  EXPECT_EQ(answer(text, {.with_tools = false}).text, text);
  EXPECT_THAT(answer(text, {.with_tools = false}).calls, IsEmpty());
}

TEST(AnswerParser, SeparatesReasoning) {
  const Given possible{.reasoning = Reasoning::Possible};
  const Given open{.reasoning = Reasoning::Open};
  EXPECT_EQ(answer("<think>\nHm < 3.\n\n</think>\n\nYes.\n", possible), (Answer{"Hm < 3.", "Yes.\n", {}}));
  EXPECT_EQ(answer("\n<think>a</think>b", possible), (Answer{"a", "b", {}}));
  EXPECT_EQ(answer("\nHm.\n</think>\n\nYes.", open), (Answer{"Hm.", "Yes.", {}}));
  EXPECT_EQ(answer("\n\n</think>\n\nYes <think> no.", open), (Answer{"", "Yes <think> no.", {}}));
  EXPECT_EQ(answer("never closed", open), (Answer{"never closed", "", {}}));
  EXPECT_EQ(answer(" Yes <think>.", possible), (Answer{"", " Yes <think>.", {}}));
  EXPECT_EQ(answer("<thin", possible), (Answer{"", "<thin", {}}));
  EXPECT_EQ(answer("a</think>b", {.reasoning = Reasoning::Open, .with_tools = false}),
            (Answer{"a", "b", {}}));
}

TEST(AnswerParser, FindsACallInJson) {
  EXPECT_THAT(
      calls("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"),
      ElementsAre(Call{"get_weather", R"({"city": "Oslo"})"}));
  EXPECT_THAT(calls("\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{}}</tool_call>\n"),
              ElementsAre(Call{"get_weather", "{}"}));
}

TEST(AnswerParser, GivesTheNameBeforeTheArguments) {
  AnswerParser parser(ToolFormat::Json, Reasoning::None, tools());
  EXPECT_THAT(parser.push("<tool_call>\n{\"name\": \"get_wea"), IsEmpty());
  EXPECT_THAT(parser.push("ther\", \"arg"), ElementsAre(Delta{Delta::Kind::Call, "get_weather"}));
  EXPECT_THAT(parser.push("uments\": {\"ci"), ElementsAre(Delta{Delta::Kind::Arguments, "{\"ci"}));
  EXPECT_THAT(parser.push("ty\": \"Os"), ElementsAre(Delta{Delta::Kind::Arguments, "ty\": \"Os"}));
}

TEST(AnswerParser, TakesTextBeforeAndBetweenCalls) {
  const Parsed parsed = parse(
      "I'll look.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"A\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"B\"}}\n</tool_call>\nDone.\n");
  EXPECT_EQ(parsed.answer.text, "I'll look.Done.\n");
  EXPECT_THAT(parsed.answer.calls,
              ElementsAre(Call{"get_weather", R"({"city": "A"})"}, Call{"get_weather", R"({"city": "B"})"}));
  EXPECT_FALSE(parsed.unfinished);
}

TEST(AnswerParser, TakesWhatOnlyLooksLikeACallForText) {
  for (const std::string text :
       {"Write <tool_call> and then the call.", "<tool_call>", "<tool_call>\n{\"name\": ", "<tool_call>{}",
        "<tool_call>\n{\"nam", "<tool_call>{'name': 'x'}</tool_call>", "<tool_call>[1]</tool_call>",
        "<tool_call>{\"id\": 1, \"x\": {}}</tool_call>", "<function=get_weather> is what I would write",
        "<function=unknown>\n</function>", "so <function=get_weather>\n</function>",
        "<tool_call><function=\n>", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"}) {
    EXPECT_EQ(answer(text), (Answer{"", text, {}}));
  }
}

TEST(AnswerParser, TakesTextOrCallsWhereToldSo) {
  const std::string call = "<tool_call>\n{\"name\": \"write\", \"arguments\": {}}\n</tool_call>";
  const auto parsed = [](const std::string& text) {
    AnswerParser parser(ToolFormat::Json, Reasoning::Possible, tools(), /*text_or_calls=*/true);
    Answer answer;
    for (const char c : text)
      for (const Delta& delta : parser.push(std::string_view(&c, 1))) answer.add(delta);
    for (const Delta& delta : parser.finish()) answer.add(delta);
    return answer;
  };
  EXPECT_EQ(parsed("{\"a\": \"" + call + "\"} \n"), (Answer{"", "{\"a\": \"" + call + "\"} \n", {}}));
  const Call write{"write", "{}"};
  EXPECT_EQ(parsed("<think>x</think>\n\n" + call + "\n" + call), (Answer{"x", "", {write, write}}));
}

TEST(AnswerParser, PassesOnArgumentsThatAreNoJson) {
  EXPECT_THAT(calls("<tool_call>{\"name\": \"write\", \"arguments\": {path: 'a', }}</tool_call>"),
              ElementsAre(Call{"write", "{path: 'a', }"}));
  // Brackets and strings that are never closed end with the call.
  EXPECT_THAT(calls("<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": [1}</tool_call>"
                    "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": \"b}}</tool_call>\n"
                    "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": \"c</tool_call>"),
              ElementsAre(Call{"write", "{\"a\": [1}"}, Call{"write", "{\"a\": \"b}}"},
                          Call{"write", "{\"a\": \"c"}));
}

TEST(AnswerParser, EscapesControlCharactersInStrings) {
  EXPECT_THAT(
      calls("<tool_call>{\"name\": \"write\", \"arguments\": {\n\"a\": \"x\n\ty\\n\x01\"}}</tool_call>"),
      ElementsAre(Call{"write", "{\n\"a\": \"x\\n\\ty\\n\\u0001\"}"}));
}

TEST(AnswerParser, MakesAnObjectOfOtherArguments) {
  const auto with = [](const std::string& members) {
    const std::vector<Call> found = calls("<tool_call>\n{\"name\": \"write\"" + members + "}\n</tool_call>");
    EXPECT_EQ(found.size(), 1u) << members;
    return found.empty() ? "" : found[0].arguments;
  };
  EXPECT_EQ(with(""), "{}");
  EXPECT_EQ(with(", \"arguments\": null"), "{}");
  EXPECT_EQ(with(", \"arguments\": "), "{}");
  EXPECT_EQ(with(", \"arguments\": \"{\\\"a\\\": \\\"b\\\"}\""), "{\"a\": \"b\"}");
  EXPECT_EQ(with(", \"arguments\": \"\""), "\"\"");
  EXPECT_EQ(with(", \"arguments\": 5 "), "5");
  EXPECT_EQ(with(", \"id\": {\"a\": \"}\"}, \"arguments\": {\"b\": 1}, \"c\": \"</tool_call>\", \"d\": 4"),
            "{\"b\": 1}");
  EXPECT_EQ(with(", \"parameters\": {\"b\": 1}"), "{\"b\": 1}");
}

TEST(AnswerParser, TakesTheNameBehindTheArguments) {
  EXPECT_THAT(calls("<tool_call>{\"arguments\": {\"a\": \"</tool_call>\"}, \"name\": \"write\"}</tool_call>"),
              ElementsAre(Call{"write", R"({"a":"</tool_call>"})"}));
  EXPECT_THAT(calls("<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"write\"}}</tool_call>"),
              ElementsAre(Call{"write", "{}"}));
}

TEST(AnswerParser, KeepsTagsInsideStrings) {
  EXPECT_THAT(
      calls("<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": \"<tool_call> </tool_call> \\\"<\"}}"
            "</tool_call>"),
      ElementsAre(Call{"write", "{\"a\": \"<tool_call> </tool_call> \\\"<\"}"}));
}

TEST(AnswerParser, ForgivesMissingAndSurplusEnds) {
  EXPECT_THAT(
      calls("<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": 1}</tool_call>"
            "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": 2}}}</tool_call>"
            "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": 3}}"
            "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": 4}}\n{\"name\": \"write\", "
            "\"arguments\": {\"a\": 5}}"),
      ElementsAre(Call{"write", "{\"a\": 1}"}, Call{"write", "{\"a\": 2}"}, Call{"write", "{\"a\": 3}"},
                  Call{"write", "{\"a\": 4}"}, Call{"write", "{\"a\": 5}"}));
}

TEST(AnswerParser, FindsACallInXml) {
  EXPECT_THAT(
      calls("<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\n"
            "x = \"1\\n\"\n\n  y\n\n</parameter>\n</function>\n</tool_call>"),
      ElementsAre(Call{"write", R"({"path":"a.txt","content":"x = \"1\\n\"\n\n  y\n"})"}));
  EXPECT_THAT(calls("<tool_call><function=write></function></tool_call>\n"
                    "<tool_call><function=write><parameter=path>a</parameter></function></tool_call>"),
              ElementsAre(Call{"write", "{}"}, Call{"write", R"({"path":"a"})"}));
}

TEST(AnswerParser, StreamsStringsInXml) {
  AnswerParser parser(ToolFormat::Xml, Reasoning::None, tools());
  EXPECT_THAT(parser.push("<tool_call>\n<function=write>\n"), ElementsAre(Delta{Delta::Kind::Call, "write"}));
  EXPECT_THAT(parser.push("<parameter=content>\nA \"b\"\n"),
              ElementsAre(Delta{Delta::Kind::Arguments, "{\"content\":\"A \\\"b\\\""}));
  EXPECT_THAT(parser.push("c"), ElementsAre(Delta{Delta::Kind::Arguments, "\\nc"}));
}

TEST(AnswerParser, ConvertsByTheSchema) {
  const auto value = [](const std::string& parameter, const std::string& text) {
    const std::vector<Call> found = calls("<tool_call>\n<function=write>\n<parameter=" + parameter + ">\n" +
                                          text + "\n</parameter>\n</function>\n</tool_call>");
    EXPECT_EQ(found.size(), 1u);
    const std::string arguments = found.empty() ? "" : found[0].arguments;
    const ordered_json parsed = ordered_json::parse(arguments, nullptr, false);
    EXPECT_TRUE(parsed.is_object() && parsed.contains(parameter)) << arguments;
    return arguments.substr(parameter.size() + 4, arguments.size() - parameter.size() - 5);
  };
  EXPECT_EQ(value("path", "5"), "\"5\"");
  EXPECT_EQ(value("path", "null"), "\"null\"");
  EXPECT_EQ(value("unknown", "5"), "\"5\"");
  EXPECT_EQ(value("mode", "5"), "5");
  EXPECT_EQ(value("mode", " 5 "), "5");
  EXPECT_EQ(value("mode", "5.0"), "5");
  EXPECT_EQ(value("mode", "5.5"), "5.5");
  EXPECT_EQ(value("mode", "None"), "null");
  EXPECT_EQ(value("mode", "five"), "\"five\"");
  EXPECT_EQ(value("ratio", "5.50"), "5.50");
  EXPECT_EQ(value("ratio", "1e999"), "\"1e999\"");
  EXPECT_EQ(value("force", "True"), "true");
  EXPECT_EQ(value("force", "false"), "false");
  EXPECT_EQ(value("note", "null"), "null");
  EXPECT_EQ(value("note", "5"), "\"5\"");
  EXPECT_EQ(value("note", "\"quoted\""), "\"\\\"quoted\\\"\"");
  EXPECT_EQ(value("lines", "[1, \"</parameter> x\",\n2]"), "[1, \"</parameter> x\",\n2]");
  EXPECT_EQ(value("lines", "[1,"), "\"[1,\"");
  EXPECT_EQ(value("options", "{\"a\": {}}"), "{\"a\": {}}");
  EXPECT_EQ(value("any", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(value("any", "1"), "\"1\"");
  EXPECT_EQ(value("any", ""), "\"\"");
}

TEST(AnswerParser, KeepsTagsInsideValuesInXml) {
  EXPECT_THAT(calls("<tool_call>\n<function=write>\n<parameter=content>\n<a>\n</parameter>\nx </function> y\n"
                    "</tool_call>\n<parameter=foo>\n</a>\n</parameter>\n</function>\n</tool_call>"),
              ElementsAre(Call{"write", R"({"content":"<a>\n</parameter>\nx </function> y\n</tool_call>\n)"
                                        R"(<parameter=foo>\n</a>"})"}));
}

TEST(AnswerParser, ForgivesMissingTagsInXml) {
  EXPECT_THAT(
      calls("<function=write>\n<parameter=path>\na\n<parameter=content>\nb\n</function>\n</tool_call>"),
      ElementsAre(Call{"write", R"({"path":"a","content":"b"})"}));
  EXPECT_THAT(
      calls("<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n</tool_call>\n<tool_call>"
            "<function=write>\n<parameter=path>\nb\n</parameter>"),
      ElementsAre(Call{"write", R"({"path":"a"})"}, Call{"write", R"({"path":"b"})"}));
  EXPECT_THAT(calls("<tool_call>\n<function=write>\n{\"path\": \"a\"}\n</function>\n</tool_call>"),
              ElementsAre(Call{"write", R"({"path": "a"})"}));
}

TEST(AnswerParser, EndsAValueThatIsEmpty) {
  for (const std::string name : {"path", "unknown"}) {
    EXPECT_THAT(calls("<tool_call>\n<function=write>\n<parameter=" + name +
                      ">\n<parameter=content>\nb\n</parameter>\n"
                      "</function>\n</tool_call>"),
                ElementsAre(Call{"write", "{\"" + name + R"(":"","content":"b"})"}));
  }
}

TEST(AnswerParser, EndsReasoningWithACall) {
  const Given open{.reasoning = Reasoning::Open};
  EXPECT_EQ(answer("I call.\n<tool_call>\n<function=write>\n</function>\n</tool_call>", open),
            (Answer{"I call.", "", {{"write", "{}"}}}));
  EXPECT_EQ(answer("I could <tool_call>{\"name\": \"f\"}\n</think>No.", open),
            (Answer{"I could <tool_call>{\"name\": \"f\"}", "No.", {}}));
  EXPECT_EQ(answer("Hm.</think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", open),
            (Answer{"Hm.", "", {{"f", "{}"}}}));
}

TEST(AnswerParser, SaysThatACallIsUnfinished) {
  const std::string json =
      "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
  const std::string xml =
      "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>";
  for (const std::string& text : {json, xml}) {
    for (size_t size = 0; size <= text.size(); ++size) {
      const Parsed cut = parse_pieces({std::string_view(text).substr(0, size)}, {.cut_off = true});
      if (cut.answer.calls.empty()) continue;
      const bool whole = ordered_json::parse(cut.answer.calls[0].arguments, nullptr, false).is_object();
      EXPECT_EQ(cut.unfinished, !whole) << text.substr(0, size) << " -> " << cut.answer.calls[0].arguments;
    }
  }
}

TEST(AnswerParser, TakesLinearTime) {
  // Each of these would take minutes if anything were looked at again and again.
  const auto repeat = [](std::string_view text, size_t bytes) {
    std::string out;
    while (out.size() < bytes) out += text;
    return out;
  };
  for (const std::string& text :
       {repeat("<", 1 << 20), repeat(" ", 1 << 20), repeat("<tool_call>", 1 << 20),
        "<tool_call>" + repeat(" ", 1 << 20), "<tool_call>{\"a\": [" + repeat("[", 1 << 20),
        "<tool_call>{\"name\": \"" + repeat("a", 1 << 20),
        "<tool_call><function=write><parameter=lines>" + repeat("</parameter> <", 1 << 20),
        "<tool_call>{\"name\": \"write\", \"arguments\": \"" + repeat("</tool_call> ", 1 << 20)}) {
    AnswerParser parser(ToolFormat::Json, Reasoning::Possible, tools());
    for (size_t at = 0; at < text.size(); at += 5) parser.push(std::string_view(text).substr(at, 5));
    parser.finish();
  }
}

TEST(AnswerDecoder, GivesTheTextOfTagsThatAreControlTokens) {
  tokenizer::SmallVocabulary vocabulary;
  const tokenizer::Token think = vocabulary.add("<think>", 3);
  const tokenizer::Token call = vocabulary.add("<tool_call>", 4);
  const tokenizer::Token other = vocabulary.add("<|im_start|>", 3);
  const tokenizer::Tokenizer tokenizer = vocabulary.make();
  AnswerDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(think) + decoder.push(other) + decoder.push(call), "<think><tool_call>");
  EXPECT_EQ(decoder.push(0xe2), "");  // a byte that begins a character: tokens 0 to 255 are the bytes
  EXPECT_EQ(decoder.push(think), "\uFFFD<think>");
}

gguf::RawGguf model_with(const std::string& source) {
  gguf::RawGguf raw(3, 0, 1);
  raw.key("tokenizer.chat_template", gguf::ValueType::String).string(source);
  return raw;
}

TEST(AnswerFormat, IsReadOffTheTemplate) {
  const std::string loop =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}";
  const std::string end =
      "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n";
  const std::string json =
      "\n<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments "
      "| tojson }}}\n</tool_call>";
  const std::string xml =
      "\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items "
      "%}<parameter={{ k "
      "}}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>";
  const std::string tools =
      "{% if tools %}Use <tool_call>{\"name\": ...}</tool_call>{{ tools | tojson }}{% endif %}";
  const auto renderer = [&](const std::string& call, const std::string& generation) {
    const gguf::RawGguf raw = model_with(tools + loop + call + end + generation + "{% endif %}");
    return Renderer(raw.parse());
  };
  EXPECT_EQ(renderer(json, "").answer_format().tools, ToolFormat::Json);
  EXPECT_EQ(renderer(xml, "").answer_format().tools, ToolFormat::Xml);
  EXPECT_EQ(renderer("", "").answer_format().tools, ToolFormat::None);
  EXPECT_EQ(Renderer(model_with("{{ messages[0].content }}").parse()).answer_format().tools,
            ToolFormat::None);

  Conversation conversation;
  conversation.messages = {{{"role", "user"}, {"content", "<think>"}}};
  const auto reasoning = [&](const std::string& generation) {
    const Renderer made = renderer(json, generation);
    return made.reasoning_after(made.render(conversation));
  };
  EXPECT_EQ(reasoning(""), Reasoning::None);
  EXPECT_EQ(reasoning("<think>\n{# </think> #}"), Reasoning::Open);
  EXPECT_EQ(reasoning("<think>\n\n</think>\n\n"), Reasoning::None);
  EXPECT_EQ(reasoning("{# </think> #}"), Reasoning::Possible);
}

}  // namespace
}  // namespace redlite::chat
