#include "constrain/schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/quote.h"
#include "chat/tool_schemas.h"
#include "constrain/regex.h"
#include "tokenizer/unicode.h"

namespace redlite::constrain {
namespace {

constexpr int kMaxNestedSchemas = 64;
constexpr size_t kMaxReferenceRules = 5000;

constexpr std::array<std::string_view, 21> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "dependencies",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "unevaluatedItems",
                                                           "unevaluatedProperties",
                                                           "$anchor",
                                                           "$dynamicRef",
                                                           "$dynamicAnchor",
                                                           "$recursiveRef",
                                                           "$recursiveAnchor",
                                                           "uniqueItems",
                                                           "extends",
                                                           "disallow",
                                                           "divisibleBy"};

constexpr std::array kNumberKeywords = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                        "multipleOf"};
constexpr std::array kStringKeywords = {"minLength", "maxLength", "pattern", "format"};
constexpr std::array kArrayKeywords = {"items", "prefixItems", "additionalItems", "minItems", "maxItems"};
constexpr std::array kObjectKeywords = {"properties",       "required",      "additionalProperties",
                                        "minProperties",    "maxProperties", "propertyNames",
                                        "patternProperties"};

template <typename Keywords>
bool has_any(const Schema& schema, const Keywords& keywords) {
  return std::any_of(keywords.begin(), keywords.end(), [&](const char* key) { return schema.contains(key); });
}

/// The types to write. Where a schema states none, those that its keywords speak of; others would be valid,
/// too, but not meant.
uint8_t types_to_write(const Schema& schema) {
  if (schema.contains("type")) return stated_types(schema);
  uint8_t out = 0;
  if (has_any(schema, kNumberKeywords)) out |= chat::kInteger | chat::kNumber;
  if (has_any(schema, kStringKeywords)) out |= chat::kString;
  if (has_any(schema, kArrayKeywords)) out |= chat::kArray;
  if (has_any(schema, kObjectKeywords)) out |= chat::kObject;
  return out != 0 ? out : uint8_t{chat::kAnyType};
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++n) at += tokenizer::decode_utf8(text, at).bytes;
  return n;
}

}  // namespace

SchemaWriter::SchemaWriter(GrammarBuilder& builder, const Schema& root, std::string where)
    : b_(builder), algebra_(root, std::move(where)), json_(builder) {
  if (!is_shallow(root, 2 * kMaxNestedSchemas)) algebra_.wrong("", "nested too deeply");
}

void SchemaWriter::check_keywords(const Schema& schema, const std::string& pointer) const {
  for (const auto& [key, value] : schema.items()) {
    if (std::find(kUnsupported.begin(), kUnsupported.end(), key) == kUnsupported.end()) continue;
    const bool off = key == "uniqueItems" ? value == Schema(false) : key == "not" && value == Schema(false);
    if (!off) algebra_.wrong(below(pointer, key), "this keyword is not supported");
  }
}

uint32_t SchemaWriter::count(const Schema& schema, const char* keyword, uint32_t otherwise,
                             const std::string& pointer) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return otherwise;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0) || value != std::floor(value))
    algebra_.wrong(below(pointer, keyword), "a count is wanted");
  return value >= double{kNoLimit} ? kNoLimit : static_cast<uint32_t>(value);
}

NodeId SchemaWriter::write(const Schema& schema, const std::string& pointer, const Position& position) {
  if (schema == Schema(true)) return write(Schema::object(), pointer, position);
  if (schema == Schema(false)) return b_.never();
  if (!schema.is_object()) algebra_.wrong(pointer, "a schema is an object, true or false");
  if (++depth_ > kMaxNestedSchemas) algebra_.wrong(pointer, "nested too deeply, or in a circle");
  struct Leave {
    int& depth;
    ~Leave() { --depth; }
  } const leave{depth_};
  check_keywords(schema, pointer);

  // A bare reference becomes a rule, so that it may be recursive.
  const bool bare = std::all_of(schema.items().begin(), schema.items().end(), [](const auto& item) {
    return item.key() == "$ref" || is_annotation(item.key());
  });
  if (bare && schema.contains("$ref") && schema["$ref"].is_string())
    return write_reference(schema["$ref"].get<std::string>(), pointer, position);
  if (schema.contains("$ref") || schema.contains("allOf"))
    return write(algebra_.flatten(schema, pointer), pointer, position);
  if (schema.contains("anyOf")) return write_branches(schema, "anyOf", pointer, position);
  if (schema.contains("oneOf")) return write_branches(schema, "oneOf", pointer, position);
  if (schema.contains("const"))
    return write_values(schema, Schema::array({schema["const"]}), pointer, position);
  if (schema.contains("enum")) return write_values(schema, schema["enum"], pointer, position);

  if (schema.contains("type")) {
    const Schema& type = schema["type"];
    const Schema& names = type.is_array() ? type : Schema::array({type});
    for (const Schema& name : names)
      if (!name.is_string() || stated_types({{"type", name}}) == chat::kAnyType)
        algebra_.wrong(below(pointer, "type"), "no such type");
  }
  const uint8_t types = types_to_write(schema);
  const NodeId next = position.next;
  const bool limited = has_any(schema, kNumberKeywords) || has_any(schema, kStringKeywords) ||
                       has_any(schema, kArrayKeywords) || has_any(schema, kObjectKeywords);
  if (types == chat::kAnyType && !limited && !position.plain()) return json_.any_value(next);
  std::vector<NodeId> choices;
  if (types & chat::kObject) choices.push_back(write_object(schema, pointer, next));
  if (types & chat::kArray) choices.push_back(write_array(schema, pointer, next));
  if (types & chat::kNumber) {
    choices.push_back(write_number(schema, false, pointer, next));
  } else if (types & chat::kInteger) {
    choices.push_back(write_number(schema, true, pointer, next));
  }
  if (types & chat::kBoolean) {
    choices.push_back(b_.literal("true", next));
    choices.push_back(b_.literal("false", next));
  }
  if (types & chat::kNull) choices.push_back(b_.literal("null", next));
  if (types & chat::kString) choices.push_back(write_string(schema, pointer, position));
  return b_.any_of(choices);
}

NodeId SchemaWriter::write_reference(const std::string& reference, const std::string& pointer,
                                     const Position& position) {
  const Schema& target = algebra_.resolve(reference, pointer);
  if (position.plain()) return write(target, pointer, position);
  const auto [found, is_new] = rules_.try_emplace(reference, 0);
  if (is_new) {
    if (rules_.size() > kMaxReferenceRules) algebra_.wrong(pointer, "too many references");
    found->second = b_.reserve();
    pending_.push_back({found->second, reference, pointer});
  }
  return b_.call(found->second, position.next);
}

void SchemaWriter::finish() {
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    const Schema& target = algebra_.resolve(next.reference, next.pointer);
    b_.set(next.rule, value_in(target, next.reference.substr(1), b_.finish_rule()));
  }
}

std::string SchemaWriter::place_of(NodeId node) const {
  for (const auto& [reference, rule] : rules_)
    if (rule == node) return reference.substr(1);
  return "";
}

NodeId SchemaWriter::write_branches(const Schema& schema, const char* keyword, const std::string& pointer,
                                    const Position& position) {
  const Schema& branches = schema[keyword];
  const std::string place = below(pointer, keyword);
  if (!branches.is_array() || branches.empty()) algebra_.wrong(place, "an array of schemas is wanted");
  if (std::string_view(keyword) == "oneOf") {
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!algebra_.exclusive(branches[i], branches[j], below(place, std::to_string(i)))) {
          algebra_.wrong(place,
                         fmt::format("a value may satisfy the branches {} and {}; use anyOf, or a property "
                                     "whose const differs",
                                     j, i));
        }
      }
    }
  }
  Schema rest = schema;
  rest.erase(keyword);
  const bool alone = std::all_of(rest.items().begin(), rest.items().end(),
                                 [](const auto& item) { return is_annotation(item.key()); });
  std::vector<NodeId> choices;
  for (size_t i = 0; i < branches.size(); ++i) {
    const std::string at = below(place, std::to_string(i));
    choices.push_back(write(alone ? branches[i] : algebra_.both(rest, branches[i], at), at, position));
  }
  return b_.any_of(choices);
}

/// Whether a value of enum or const satisfies what stands beside these.
bool SchemaWriter::satisfies(const Schema& value, const Schema& schema, const std::string& pointer) const {
  for (const auto& [key, limit] : schema.items()) {
    if (key == "type") {
      if ((type_of_value(value) & stated_types({{"type", limit}})) == 0) return false;
    } else if (key == "minLength" || key == "maxLength") {
      if (!value.is_string()) continue;
      const size_t n = count_characters(value.get_ref<const std::string&>());
      if (n < count(schema, "minLength", 0, pointer) || n > count(schema, "maxLength", kNoLimit, pointer))
        return false;
    } else if (value.is_number() && limit.is_number() && key == "minimum") {
      if (value < limit) return false;
    } else if (value.is_number() && limit.is_number() && key == "maximum") {
      if (value > limit) return false;
    } else if (value.is_number() && limit.is_number() && key == "exclusiveMinimum") {
      if (value <= limit) return false;
    } else if (value.is_number() && limit.is_number() && key == "exclusiveMaximum") {
      if (value >= limit) return false;
    } else {
      const std::string& keyword = key;  // clang 14 captures no structured binding
      const auto about = [&](const auto& keywords) {
        return std::find(keywords.begin(), keywords.end(), keyword) != keywords.end();
      };
      const bool matters =
          (about(kNumberKeywords) && value.is_number()) || (about(kStringKeywords) && value.is_string()) ||
          (about(kArrayKeywords) && value.is_array()) || (about(kObjectKeywords) && value.is_object());
      if (matters) algebra_.wrong(below(pointer, key), "not supported beside enum and const");
    }
  }
  return true;
}

NodeId SchemaWriter::write_values(const Schema& schema, const Schema& values, const std::string& pointer,
                                  const Position& position) {
  if (!values.is_array()) algebra_.wrong(below(pointer, "enum"), "an array is wanted");
  Schema beside = schema;
  beside.erase("const");
  beside.erase("enum");
  if (schema.contains("const") && schema.contains("enum") && schema["enum"].is_array()) {
    const Schema& listed = schema["enum"];
    if (std::find(listed.begin(), listed.end(), schema["const"]) == listed.end()) return b_.never();
  }
  std::vector<NodeId> choices;
  for (const Schema& value : values) {
    if (!satisfies(value, beside, pointer)) continue;
    if (position.plain() && value.is_string()) {
      const std::string text = value.get<std::string>();
      if (text.find(position.plain_end) == std::string::npos)
        choices.push_back(b_.literal(text, b_.literal(position.plain_end, position.plain_next)));
    } else if (value.is_string()) {
      choices.push_back(json_.quoted(value.get_ref<const std::string&>(), position.next));
    } else {
      choices.push_back(b_.literal(value.dump(), position.next));
    }
  }
  return b_.any_of(choices);
}

NodeId SchemaWriter::write_number(const Schema& schema, bool integer, const std::string& pointer,
                                  NodeId next) {
  NumberRange range;
  const auto limit = [&](const char* key, bool low, bool open) {
    const auto found = schema.find(key);
    if (found == schema.end()) return;
    const std::string exclusive = low ? "exclusiveMinimum" : "exclusiveMaximum";
    if (found->is_boolean() && key == exclusive) return;  // draft 4: it is a switch of minimum's
    if (!found->is_number()) algebra_.wrong(below(pointer, key), "a number is wanted");
    const double value = found->get<double>();
    const auto other = schema.find(exclusive);
    if (!open && other != schema.end() && other->is_boolean()) open = other->get<bool>();
    bool& has = low ? range.has_low : range.has_high;
    double& bound = low ? range.low : range.high;
    bool& is_open = low ? range.above_low : range.below_high;
    const bool tighter = !has || (low ? value > bound : value < bound) || (value == bound && open);
    if (!tighter) return;
    has = true;
    bound = value;
    is_open = open;
  };
  limit("minimum", true, false);
  limit("exclusiveMinimum", true, true);
  limit("maximum", false, false);
  limit("exclusiveMaximum", false, true);
  if (const auto step = schema.find("multipleOf"); step != schema.end()) {
    constexpr std::array kSteps = {1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10};
    const double value = step->is_number() ? step->get<double>() : 0;
    const auto* const found = std::find(kSteps.begin(), kSteps.end(), value);
    if (found == kSteps.end())
      algebra_.wrong(below(pointer, "multipleOf"), "only 1, 0.1, 0.01 and so on are supported");
    range.fraction_digits = static_cast<int>(found - kSteps.begin());
  }
  if (!integer) {
    try {
      return number_between(b_, range, next);
    } catch (const Error& e) {
      algebra_.wrong(pointer, e.what());
    }
  }
  const double most = static_cast<double>(kMaxInteger);
  double low = range.has_low ? std::ceil(range.low) : -most;
  double high = range.has_high ? std::floor(range.high) : most;
  if (range.above_low && low == range.low) low += 1;
  if (range.below_high && high == range.high) high -= 1;
  if (low > most || high < -most)
    algebra_.wrong(pointer, "integers of more than 18 digits are not supported");
  return integer_between(b_, low <= -most ? -kMaxInteger : static_cast<int64_t>(low),
                         high >= most ? kMaxInteger : static_cast<int64_t>(high), next);
}

NodeId SchemaWriter::write_string(const Schema& schema, const std::string& pointer,
                                  const Position& position) {
  const uint32_t min = count(schema, "minLength", 0, pointer);
  const uint32_t max = count(schema, "maxLength", kNoLimit, pointer);
  std::vector<Regex> expressions;
  const auto add = [&](std::string_view pattern, const char* keyword) {
    try {
      expressions.emplace_back(pattern);
    } catch (const Error& e) {
      algebra_.wrong(below(pointer, keyword), e.what());
    }
  };
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    for (const Schema& one : pattern->is_array() ? *pattern : Schema::array({*pattern})) {
      if (!one.is_string()) algebra_.wrong(below(pointer, "pattern"), "a string is wanted");
      add(one.get_ref<const std::string&>(), "pattern");
    }
  }
  if (const auto format = schema.find("format"); format != schema.end() && format->is_string()) {
    const std::string_view pattern = format_pattern(format->get_ref<const std::string&>());
    if (!pattern.empty()) add(pattern, "format");  // formats that are not known only describe
  }
  const bool plain = position.plain();
  if (expressions.empty() && plain && min == 0 && max == kNoLimit)
    return b_.until(position.plain_end, position.plain_next);
  if (expressions.empty() && plain) expressions.emplace_back("");
  if (expressions.empty()) return json_.string(min, max, position.next);
  const NodeId end =
      plain ? b_.literal(position.plain_end, position.plain_next) : b_.literal("\"", position.next);
  try {
    const NodeId text = matching_all(b_, expressions, min, max, plain ? Writing::Plain : Writing::Json, end);
    return plain ? text : b_.literal("\"", text);
  } catch (const Error& e) {
    algebra_.wrong(pointer, e.what());
  }
}

NodeId SchemaWriter::rule_of(const Schema& schema, const std::string& pointer) {
  return value_in(schema, pointer, b_.finish_rule());
}

NodeId SchemaWriter::write_array(const Schema& schema, const std::string& pointer, NodeId next) {
  const uint32_t min = count(schema, "minItems", 0, pointer);
  const uint32_t max = count(schema, "maxItems", kNoLimit, pointer);
  // Before 2020 items could be an array, and additionalItems what is items now.
  const bool old = schema.contains("items") && schema["items"].is_array();
  const char* prefix_key = old ? "items" : "prefixItems";
  const char* rest_key = old ? "additionalItems" : "items";
  const Schema prefix = schema.contains(prefix_key) ? schema[prefix_key] : Schema::array();
  if (!prefix.is_array()) algebra_.wrong(below(pointer, prefix_key), "an array of schemas is wanted");
  // Behind a prefix more elements come only where the schema speaks of them, or wants them.
  const bool has_rest = schema.contains(rest_key);
  const bool none = !has_rest && !prefix.empty() && min <= prefix.size();
  const Schema rest = none ? Schema(false) : has_rest ? schema[rest_key] : Schema(true);
  const NodeId rule = rule_of(rest, below(pointer, rest_key));
  if (prefix.empty()) return json_.array_of(rule, min, max, next);
  if (max < min) return b_.never();

  const auto used = static_cast<uint32_t>(std::min<size_t>(prefix.size(), max));
  const NodeId close = b_.literal("]", next);
  const auto comma = [&](NodeId element) { return b_.literal(",", json_.blanks(element)); };
  const uint32_t more_min = min > used ? min - used : 0;
  const uint32_t more_max = max == kNoLimit ? kNoLimit : max - used;
  NodeId after = b_.loop(comma(b_.call(rule, b_.finish_rule())), more_min, more_max, json_.blanks(close));
  NodeId first = close;
  for (uint32_t i = used; i-- > 0;) {
    first = value_in(prefix[i], below(below(pointer, prefix_key), std::to_string(i)), after);
    const NodeId end = i >= min ? (i == 0 ? close : json_.blanks(close)) : b_.never();
    after = i == 0 ? b_.either(end, json_.blanks(first)) : b_.either(end, comma(first));
  }
  return b_.literal("[", after);
}

/// An object whose members' names are not given one by one.
NodeId SchemaWriter::write_map(const Schema& schema, const std::string& pointer, NodeId next) {
  Schema values = schema.contains("additionalProperties") ? schema["additionalProperties"] : Schema(true);
  std::string values_at = below(pointer, "additionalProperties");
  Schema names = schema.contains("propertyNames") ? schema["propertyNames"] : Schema(true);
  if (schema.contains("patternProperties")) {
    const Schema& patterns = schema["patternProperties"];
    const std::string place = below(pointer, "patternProperties");
    const bool alone = !schema.contains("additionalProperties") || values == Schema(false);
    if (!patterns.is_object() || patterns.size() != 1 || !alone)
      algebra_.wrong(place, "only one pattern, without additionalProperties, is supported");
    values_at = below(place, patterns.begin().key());
    names = algebra_.both(names, {{"type", "string"}, {"pattern", patterns.begin().key()}}, place);
    values = *patterns.begin();
  }
  const NodeId value = value_in(values, values_at, b_.finish_rule());
  const NodeId colon = json_.colon(value);
  const bool any_name = names == Schema(true);
  const NodeId member = any_name ? json_.string(0, kNoLimit, colon)
                                 : value_in(algebra_.both(names, {{"type", "string"}}, pointer),
                                            below(pointer, "propertyNames"), colon);
  return json_.object_of(member, count(schema, "minProperties", 0, pointer),
                         count(schema, "maxProperties", kNoLimit, pointer), next);
}

NodeId SchemaWriter::write_object(const Schema& schema, const std::string& pointer, NodeId next) {
  const Schema properties = schema.contains("properties") ? schema["properties"] : Schema::object();
  const Schema required = schema.contains("required") ? schema["required"] : Schema::array();
  if (!properties.is_object()) algebra_.wrong(below(pointer, "properties"), "an object is wanted");
  if (!required.is_array()) algebra_.wrong(below(pointer, "required"), "an array of names is wanted");
  const bool has_additional = schema.contains("additionalProperties");
  Schema additional =
      has_additional ? schema["additionalProperties"] : Schema(!schema.contains("properties"));
  if (properties.empty() && required.empty() && additional != Schema(false))
    return write_map(schema, pointer, next);
  if (properties.empty() && required.empty() && schema.contains("patternProperties"))
    return write_map(schema, pointer, next);

  struct Property {
    std::string name;
    const Schema* schema;
    std::string pointer;
    bool required = false;
  };
  const Schema free_value = has_additional ? additional : Schema(true);
  std::vector<Property> all;
  std::map<std::string, size_t> index;
  for (const auto& [name, value] : properties.items()) {
    index.emplace(name, all.size());
    all.push_back({name, &value, below(below(pointer, "properties"), name)});
  }
  size_t n_required = 0;
  for (const Schema& entry : required) {
    if (!entry.is_string()) algebra_.wrong(below(pointer, "required"), "an array of names is wanted");
    const std::string name = entry.get<std::string>();
    const auto [found, is_new] = index.try_emplace(name, all.size());
    if (is_new) all.push_back({name, &free_value, below(pointer, "additionalProperties")});
    if (!all[found->second].required) ++n_required;
    all[found->second].required = true;
  }
  for (const char* key : {"propertyNames", "patternProperties"})
    if (schema.contains(key))
      algebra_.wrong(below(pointer, key), "not supported beside properties and required");
  if (count(schema, "minProperties", 0, pointer) > n_required)
    algebra_.wrong(below(pointer, "minProperties"), "not supported beside properties and required");
  if (count(schema, "maxProperties", kNoLimit, pointer) < all.size() ||
      (schema.contains("maxProperties") && additional != Schema(false)))
    algebra_.wrong(below(pointer, "maxProperties"), "not supported beside properties and required");

  // Written from the end. `pick`: a member from i on comes now; `after`: a member was written, those from i
  // on may come.
  const NodeId close = b_.literal("}", next);
  const NodeId close_after = json_.blanks(close);
  NodeId pick = b_.never(), after = close_after;
  if (additional != Schema(false)) {
    std::vector<std::string_view> names;
    for (const Property& property : all) names.push_back(property.name);
    after = b_.reserve();
    const NodeId value = value_in(additional, below(pointer, "additionalProperties"), after);
    pick = json_.string_other_than(names, json_.colon(value));
    b_.set(after, b_.either(close_after, b_.literal(",", json_.blanks(pick))));
  }
  bool may_close = true;
  for (size_t i = all.size(); i-- > 0;) {
    const NodeId value = value_in(*all[i].schema, all[i].pointer, after);
    const NodeId member = json_.quoted(all[i].name, json_.colon(value));
    pick = all[i].required ? member : b_.either(member, pick);
    may_close = may_close && !all[i].required;
    const NodeId comma = b_.literal(",", json_.blanks(pick));
    after = may_close ? b_.either(close_after, comma) : comma;
  }
  const NodeId inside = json_.blanks(pick);
  return b_.literal("{", may_close ? b_.either(close, inside) : inside);
}

}  // namespace redlite::constrain
