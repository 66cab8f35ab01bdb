#include "constrain/constrain.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/quote.h"
#include "chat/tool_schemas.h"
#include "constrain/grammar.h"
#include "constrain/schema.h"

namespace redlite::constrain {
namespace {

using nlohmann::ordered_json;

NodeId after_line_breaks(GrammarBuilder& b, NodeId next) {
  const NodeId one = b.optional(b.literal("\n", next), next);
  return b.optional(b.literal("\n", one), next);
}

NodeId after_reasoning(GrammarBuilder& b, chat::Reasoning reasoning, NodeId next) {
  if (reasoning == chat::Reasoning::None) return next;
  const NodeId inside = b.until(chat::kThinkEnd, after_line_breaks(b, next));
  return reasoning == chat::Reasoning::Open ? inside : b.either(next, b.literal(chat::kThinkBegin, inside));
}

std::shared_ptr<const Grammar> complete(GrammarBuilder&& b, NodeId start, std::string_view what) {
  auto grammar = std::make_shared<const Grammar>(std::move(b).finish(start));
  if (!grammar->productive(start)) fail("{}: nothing finite satisfies it", what);
  return grammar;
}

/// Writes one schema with everything that it refers to.
class WholeSchema {
 public:
  WholeSchema(GrammarBuilder& b, const Schema& schema, std::string where)
      : b_(b), schema_(schema), where_(std::move(where)), writer_(b, schema, where_) {}

  NodeId write(const Position& position) { return writer_.write(schema_, "", position); }
  NodeId write(const Schema& part, const std::string& pointer, const Position& position) {
    return writer_.write(part, pointer, position);
  }
  void finish() {
    writer_.finish();
    if (const auto rule = b_.find_left_recursion())
      writer_.algebra().wrong(writer_.place_of(*rule),
                              "the schema refers to itself without anything in between");
  }
  void check_keywords(const Schema& part) const { writer_.check_keywords(part, ""); }
  const Schema& schema() const { return schema_; }
  const SchemaAlgebra& algebra() const { return writer_.algebra(); }

 private:
  GrammarBuilder& b_;
  const Schema& schema_;
  std::string where_;
  SchemaWriter writer_;
};

struct Tool {
  std::string name;
  const Schema* parameters = nullptr;  ///< or none
  std::string where;
};

std::vector<Tool> read_tools(const ordered_json& tools, const std::string& wanted) {
  std::vector<Tool> out;
  if (!tools.is_array() || tools.empty()) fail("tools: an array of at least one tool is wanted");
  for (size_t i = 0; i < tools.size(); ++i) {
    const ordered_json& entry = tools[i];
    const bool wrapped = entry.is_object() && entry.contains("function") && entry["function"].is_object();
    const ordered_json& function = wrapped ? entry["function"] : entry;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string() ||
        function["name"].get_ref<const std::string&>().empty()) {
      fail("tools[{}]: a tool has a name", i);
    }
    Tool tool{function["name"].get<std::string>(), nullptr,
              fmt::format("tools[{}]{}.parameters", i, wrapped ? ".function" : "")};
    if (function.contains("parameters") && !function["parameters"].is_null())
      tool.parameters = &function["parameters"];
    if (wanted.empty() || tool.name == wanted) out.push_back(std::move(tool));
  }
  if (out.empty()) fail("there is no tool named {}", quote(wanted));
  return out;
}

class ToolWriter {
 public:
  ToolWriter(GrammarBuilder& b, chat::ToolFormat format, bool strict)
      : b_(b), json_(b), format_(format), strict_(strict) {}

  /// What stands behind <tool_call>, up to and with </tool_call>.
  NodeId body(const Tool& tool, NodeId next) {
    const NodeId end = b_.literal(chat::kToolCallEnd, next);
    if (format_ == chat::ToolFormat::Json) {
      const NodeId closed = b_.literal("}\n", end);
      const NodeId arguments = with_schema(
          tool, [&](WholeSchema& schema) { return schema.write({.next = closed}); },
          [&] { return json_.any_object(closed); });
      return b_.literal("\n{\"name\": ", json_.quoted(tool.name, b_.literal(", \"arguments\": ", arguments)));
    }
    if (tool.name.find_first_of(">\n<") != std::string::npos)
      fail("the name {} cannot be written in the model's format", quote(tool.name));
    const NodeId closed = b_.literal("</function>\n", end);
    const NodeId parameters = with_schema(
        tool, [&](WholeSchema& schema) { return xml_parameters(schema, closed); },
        [&] { return any_xml_parameters(closed); });
    return b_.literal("\n<function=" + tool.name + ">\n", parameters);
  }

 private:
  template <typename Write, typename Any>
  NodeId with_schema(const Tool& tool, Write write, Any any) {
    const size_t before = b_.size();
    static const Schema kNoParameters = {{"type", "object"}, {"properties", Schema::object()}};
    try {
      Tool with = tool;
      if (!with.parameters) with.parameters = &kNoParameters;
      WholeSchema schema(b_, *with.parameters, tool.where);
      const NodeId out = write(schema);
      schema.finish();
      if (const Schema flat = schema.algebra().flatten(*with.parameters, "");
          !flat.is_object() || !(stated_types(flat) & chat::kObject))
        schema.algebra().wrong("", "an object is wanted");
      return out;
    } catch (const Error& e) {
      if (strict_) {
        if (std::string_view(e.what()).starts_with("tools[")) throw;
        fail("{}: {}", tool.where, e.what());
      }
      b_.forget(before);
      json_ = JsonPieces(b_);
      return any();
    }
  }

  NodeId xml_parameters(WholeSchema& whole, NodeId next) {
    const Schema flat = whole.algebra().flatten(whole.schema(), "");
    whole.check_keywords(flat);
    for (const char* key : {"anyOf", "oneOf", "enum", "const", "minProperties", "maxProperties",
                            "propertyNames", "patternProperties"})
      if (flat.contains(key))
        whole.algebra().wrong(below("", key), "not supported for the parameters of a tool of this model");
    const Schema properties = flat.contains("properties") ? flat["properties"] : Schema::object();
    Schema names = Schema::array();
    if (flat.contains("required")) names = flat["required"];
    if (!properties.is_object() || !names.is_array())
      whole.algebra().wrong("", "properties are an object and required an array");
    std::vector<std::string> order;
    for (const auto& [name, value] : properties.items()) order.push_back(name);
    for (const Schema& name : names)
      if (name.is_string() && !properties.contains(name.get<std::string>()))
        order.push_back(name.get<std::string>());
    for (size_t i = order.size(); i-- > 0;) {
      const std::string& name = order[i];
      if (name.empty() || name.find_first_of(">\n<") != std::string::npos)
        whole.algebra().wrong(below("/properties", name),
                              "this name cannot be written in the model's format");
      const Schema value = properties.contains(name) ? properties[name] : Schema(true);
      const NodeId written = parameter(
          name, [&](const Position& p) { return whole.write(value, below("/properties", name), p); }, next);
      const bool needed = std::find(names.begin(), names.end(), name) != names.end();
      next = needed ? written : b_.optional(written, next);
    }
    return next;
  }

  template <typename Value>
  NodeId parameter(const std::string& name, Value value, NodeId next) {
    constexpr std::string_view kEnd = "\n</parameter>\n";
    const NodeId written =
        value(Position{.next = b_.literal(kEnd, next), .plain_end = kEnd, .plain_next = next});
    return b_.literal("<parameter=" + name + ">\n", written);
  }

  NodeId any_xml_parameters(NodeId next) {
    constexpr std::string_view kEnd = "\n</parameter>\n";
    const NodeId end = b_.finish_rule();
    const NodeId value = b_.literal(">\n", b_.until(kEnd, end));
    const NodeId letter = b_.any_of(std::array{b_.byte_range('a', 'z', end), b_.byte_range('A', 'Z', end),
                                               b_.byte_range('0', '9', end), b_.byte_range('_', '_', end),
                                               b_.byte_range('-', '-', end)});
    return b_.loop(b_.literal("<parameter=", b_.loop(letter, 1, 64, value)), 0, kNoLimit, next);
  }

  GrammarBuilder& b_;
  JsonPieces json_;  ///< in front of `before`, or made anew
  const chat::ToolFormat format_;
  const bool strict_;
};

constexpr std::string_view kSchema = "schema";

/// Errors of body() with kSchema in front.
template <typename Body>
auto naming_schema(Body body) {
  try {
    return body();
  } catch (const Error& e) {
    const std::string_view message = e.what();
    if (message.starts_with(kSchema)) throw;
    fail("{}: {}", kSchema, message);
  }
}

NodeId value_of(GrammarBuilder& b, const ordered_json& schema, NodeId next) {
  WholeSchema whole(b, schema, std::string(kSchema));
  const NodeId value = whole.write({.next = next});
  whole.finish();
  return value;
}

}  // namespace

std::shared_ptr<const Grammar> json_object(chat::Reasoning reasoning) {
  GrammarBuilder b;
  const NodeId object = JsonPieces(b).any_object(b.finish_rule());
  const NodeId start = after_reasoning(b, reasoning, object);
  return complete(std::move(b), start, "a JSON object");
}

std::shared_ptr<const Grammar> json_schema(const ordered_json& schema, chat::Reasoning reasoning) {
  GrammarBuilder b;
  return naming_schema([&] {
    const NodeId value = value_of(b, schema, b.finish_rule());
    const NodeId start = after_reasoning(b, reasoning, value);
    return complete(std::move(b), start, kSchema);
  });
}

std::shared_ptr<const Grammar> tool_calls(const ordered_json& tools, const ToolRules& rules,
                                          chat::ToolFormat format, chat::Reasoning reasoning) {
  RL_CHECK(format != chat::ToolFormat::None);
  const std::vector<Tool> all = read_tools(tools, rules.name);
  GrammarBuilder b;
  const NodeId end = b.finish_rule();
  // Behind a call: the end, or another one.
  const NodeId after = b.reserve();
  ToolWriter writer(b, format, rules.strict);
  std::vector<NodeId> bodies;
  for (const Tool& tool : all) bodies.push_back(writer.body(tool, after));
  const NodeId body = b.any_of(bodies);
  const NodeId call = b.literal(chat::kToolCallBegin, body);
  const bool only_calls = rules.required || rules.text;
  const NodeId free = only_calls ? b.never() : b.until_or_stop(chat::kToolCallBegin, body, end);
  b.set(after, !rules.parallel ? end : only_calls ? b.either(end, b.literal("\n", call)) : free);
  NodeId answer = only_calls ? call : free;
  if (!rules.required && rules.text)
    answer = b.either(call, naming_schema([&] { return value_of(b, *rules.text, end); }));
  const NodeId start = after_reasoning(b, reasoning, answer);
  return complete(std::move(b), start, "tools");
}

}  // namespace redlite::constrain
