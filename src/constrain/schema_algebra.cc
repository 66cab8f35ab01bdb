#include "constrain/schema_algebra.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"
#include "base/quote.h"
#include "chat/tool_schemas.h"

namespace redlite::constrain {
namespace {

constexpr int kMaxReferences = 64;  // of one schema to the next, without anything in between
constexpr size_t kMaxBranches = 64;
constexpr size_t kMaxCopied = 1'000'000;
constexpr int kMaxCompared = 4;  // levels of properties that exclude each other

constexpr std::array<std::string_view, 18> kAnnotations = {
    "title",    "description", "default", "examples",      "example",          "deprecated",
    "readOnly", "writeOnly",   "$schema", "$comment",      "contentMediaType", "contentEncoding",
    "$defs",    "definitions", "$id",     "discriminator", "nullable",         "$vocabulary"};

/// The names of types that both lists have; number allows integer.
Schema common_types(const Schema& a, const Schema& b) {
  const auto list = [](const Schema& types) { return types.is_array() ? types : Schema::array({types}); };
  const auto has = [](const Schema& types, const Schema& type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  const Schema of_a = list(a), of_b = list(b);
  Schema out = Schema::array();
  for (const Schema& type : of_a)
    if (has(of_b, type) || (type == "integer" && has(of_b, "number"))) out.push_back(type);
  for (const Schema& type : of_b)
    if (type == "integer" && has(of_a, "number") && !has(out, type) && !has(out, "number"))
      out.push_back(type);
  return out;
}

Schema common_values(const Schema& a, const Schema& b) {
  Schema out = Schema::array();
  for (const Schema& value : a)
    if (std::find(b.begin(), b.end(), value) != b.end()) out.push_back(value);
  return out;
}

bool is_one_of(std::string_view key, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

bool is_for_objects(std::string_view key) {
  return is_one_of(key, {"properties", "required", "additionalProperties"});
}

bool is_for_arrays(std::string_view key) {
  return is_one_of(key, {"items", "prefixItems", "additionalItems"});
}

const Schema* member(const Schema& schema, const char* key) {
  const auto found = schema.find(key);
  return found == schema.end() ? nullptr : &*found;
}

/// What the schema says of a property that it may not name. `true` if nothing.
Schema schema_of_property(const Schema& schema, const std::string& name) {
  const Schema* properties = member(schema, "properties");
  if (properties && properties->is_object() && properties->contains(name)) return (*properties)[name];
  const Schema* additional = member(schema, "additionalProperties");
  return additional ? *additional : Schema(true);
}

Schema all_of(const Schema& a, const Schema& b) {
  if (a == b || b == Schema(true)) return a;
  if (a == Schema(true)) return b;
  if (a == Schema(false) || b == Schema(false)) return false;
  Schema out = Schema::object();
  out["allOf"] = Schema::array({a, b});
  return out;
}

bool requires_property(const Schema& schema, const std::string& name) {
  const Schema* required = member(schema, "required");
  return required && required->is_array() &&
         std::find(required->begin(), required->end(), name) != required->end();
}

/// enum, or const as an enum; null if it has neither.
Schema values_of(const Schema& schema) {
  if (const Schema* value = member(schema, "const")) return Schema::array({*value});
  const Schema* values = member(schema, "enum");
  return values ? *values : Schema();
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  return std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
}

std::string below(const std::string& pointer, std::string_view step) {
  std::string out = pointer + "/";
  for (const char c : step) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

bool is_shallow(const Schema& value, int limit) {
  if (!value.is_structured()) return true;
  if (limit == 0) return false;
  return std::all_of(value.begin(), value.end(),
                     [limit](const Schema& v) { return is_shallow(v, limit - 1); });
}

uint8_t type_of_value(const Schema& value) {
  Schema schema = Schema::object();
  schema["const"] = value;
  return chat::allowed_types(schema, schema);
}

uint8_t stated_types(const Schema& schema) {
  Schema stated = Schema::object();
  for (const char* key : {"type", "enum", "const"})
    if (const Schema* value = member(schema, key)) stated[key] = *value;
  return chat::allowed_types(stated, stated);
}

void SchemaAlgebra::wrong(const std::string& pointer, std::string_view message) const {
  constexpr size_t kMaxPointer = 200;
  const std::string quoted = quote(pointer, kMaxPointer);  // names in it come from outside
  fail("{}#{}: {}", where_, std::string_view(quoted).substr(1, quoted.size() - 2), message);
}

const Schema& SchemaAlgebra::resolve(const std::string& reference, const std::string& pointer) const {
  if (!reference.starts_with('#'))
    wrong(below(pointer, "$ref"), "only references within the schema (#...) are supported");
  std::string path = reference.substr(1);
  // As in a URL's fragment.
  for (size_t at = path.find('%'); at != std::string::npos; at = path.find('%', at + 1)) {
    const auto hex = [&](size_t i) {
      const char c = i < path.size() ? path[i] : 'x';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (hex(at + 1) < 0 || hex(at + 2) < 0) continue;
    path.replace(at, 3, 1, static_cast<char>(hex(at + 1) * 16 + hex(at + 2)));
  }
  try {
    return root_.at(Schema::json_pointer(path));
  } catch (const Schema::exception&) {
    wrong(below(pointer, "$ref"), fmt::format("there is no {}", quote(reference)));
  }
}

Schema SchemaAlgebra::flatten(const Schema& schema, const std::string& pointer) const {
  return flatten_at(schema, pointer, 0);
}

Schema SchemaAlgebra::flatten_at(const Schema& schema, const std::string& pointer, int depth) const {
  if (depth > kMaxReferences) wrong(pointer, "references lead in a circle, or are too many");
  if (!schema.is_object()) return schema;
  const Schema* reference = member(schema, "$ref");
  const Schema* all = member(schema, "allOf");
  count_copy(schema, pointer);
  if (!reference && !all) return schema;
  Schema out = schema;
  out.erase("$ref");
  out.erase("allOf");
  if (reference) {
    if (!reference->is_string()) wrong(below(pointer, "$ref"), "a string is wanted");
    const Schema& target = resolve(reference->get_ref<const std::string&>(), pointer);
    out = both_flat(std::move(out), flatten_at(target, pointer, depth + 1), pointer);
  }
  if (all) {
    if (!all->is_array()) wrong(below(pointer, "allOf"), "an array is wanted");
    for (const Schema& branch : *all)
      out = both_flat(std::move(out), flatten_at(branch, below(pointer, "allOf"), depth + 1), pointer);
  }
  return out;
}

void SchemaAlgebra::count_copy(const Schema& schema, const std::string& pointer) const {
  ++n_copied_;
  if (n_copied_ > kMaxCopied) wrong(pointer, "too large with what its references and allOf add");
  if (!schema.is_structured()) return;
  for (const Schema& value : schema) count_copy(value, pointer);
}

Schema SchemaAlgebra::both(const Schema& a, const Schema& b, const std::string& pointer) const {
  return both_flat(flatten(a, pointer), flatten(b, pointer), pointer);
}

void SchemaAlgebra::join_objects(Schema& a, const Schema& b, const std::string& pointer) const {
  for (const Schema* schema : {static_cast<const Schema*>(&a), &b}) {
    const Schema* properties = member(*schema, "properties");
    if (properties && !properties->is_object()) wrong(below(pointer, "properties"), "an object is wanted");
  }
  Schema properties = Schema::object();
  bool any = false;
  for (const Schema* schema : {static_cast<const Schema*>(&a), &b}) {
    const Schema* own = member(*schema, "properties");
    if (!own) continue;
    any = true;
    for (const auto& [name, value] : own->items()) {
      if (properties.contains(name)) continue;
      properties[name] = all_of(schema_of_property(a, name), schema_of_property(b, name));
    }
  }
  const Schema* of_a = member(a, "additionalProperties");
  const Schema* of_b = member(b, "additionalProperties");
  const Schema additional = all_of(of_a ? *of_a : Schema(true), of_b ? *of_b : Schema(true));
  if (of_a || of_b) a["additionalProperties"] = additional;
  if (any) a["properties"] = std::move(properties);
  if (const Schema* required = member(b, "required"); required && required->is_array()) {
    Schema merged = a.contains("required") && a["required"].is_array() ? a["required"] : Schema::array();
    for (const Schema& name : *required)
      if (std::find(merged.begin(), merged.end(), name) == merged.end()) merged.push_back(name);
    a["required"] = std::move(merged);
  }
}

void SchemaAlgebra::join_arrays(Schema& a, const Schema& b, const std::string& pointer) const {
  const auto uses = [](const Schema& s) {
    return s.contains("items") || s.contains("prefixItems") || s.contains("additionalItems");
  };
  if (!uses(b)) return;
  if (!uses(a)) {
    for (const char* key : {"items", "prefixItems", "additionalItems"})
      if (const Schema* value = member(b, key)) a[key] = *value;
    return;
  }
  const auto plain = [](const Schema& s) {
    return s.contains("items") && !s["items"].is_array() && !s.contains("prefixItems");
  };
  if (!plain(a) || !plain(b)) wrong(pointer, "prefixItems in several branches of allOf is not supported");
  a["items"] = all_of(a["items"], b["items"]);
}

Schema SchemaAlgebra::both_flat(Schema a, const Schema& b, const std::string& pointer) const {
  if (a == Schema(true) || b == Schema(false) || a == b) return b;
  if (b == Schema(true) || a == Schema(false)) return a;
  if (!a.is_object() || !b.is_object()) wrong(pointer, "a schema is an object, true or false");
  join_objects(a, b, pointer);
  join_arrays(a, b, pointer);
  for (const auto& [key, value] : b.items()) {
    if (is_for_objects(key) || is_for_arrays(key) || key == "enum" || key == "const") continue;
    Schema* own = a.contains(key) ? &a[key] : nullptr;
    if (!own) {
      a[key] = value;
    } else if (*own == value || is_annotation(key)) {
      continue;
    } else if (key == "type") {
      Schema types = common_types(*own, value);
      if (types.empty()) return false;
      *own = std::move(types);
    } else if (is_one_of(key, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) &&
               own->is_number() && value.is_number()) {
      if (value > *own) *own = value;
    } else if (is_one_of(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) &&
               own->is_number() && value.is_number()) {
      if (value < *own) *own = value;
    } else if (key == "pattern") {
      // An array here means all of them; no schema from outside has one.
      Schema patterns = own->is_array() ? *own : Schema::array({*own});
      for (const Schema& pattern : value.is_array() ? value : Schema::array({value}))
        patterns.push_back(pattern);
      *own = std::move(patterns);
    } else if ((key == "anyOf" || key == "oneOf") && own->is_array() && value.is_array()) {
      if (own->size() * value.size() > kMaxBranches)
        wrong(below(pointer, key), "too many combinations of branches");
      Schema branches = Schema::array();
      for (const Schema& left : *own)
        for (const Schema& right : value) branches.push_back(all_of(left, right));
      *own = std::move(branches);
    } else {
      wrong(below(pointer, key), "two values of it cannot be combined");
    }
  }
  const Schema values_a = values_of(a), values_b = values_of(b);
  if (!values_b.is_null()) {
    a.erase("const");
    a["enum"] = values_a.is_null() ? values_b : common_values(values_a, values_b);
    if (a["enum"].empty()) return false;
  }
  return a;
}

bool SchemaAlgebra::exclusive_at(const Schema& first, const Schema& second, const std::string& pointer,
                                 int depth) const {
  if (depth > kMaxCompared) return false;
  const Schema a = flatten(first, pointer), b = flatten(second, pointer);
  if (a == Schema(false) || b == Schema(false)) return true;
  if (!a.is_object() || !b.is_object()) return false;
  const uint8_t types = stated_types(a) & stated_types(b);
  if (types == 0) return true;
  const Schema values_a = values_of(a), values_b = values_of(b);
  if (!values_a.is_null() && !values_b.is_null()) return common_values(values_a, values_b).empty();
  if (types != chat::kObject) return false;
  // Two objects: one must have what the other must not.
  const auto differ = [&](const Schema& one, const Schema& other) {
    const Schema* required = member(one, "required");
    if (!required || !required->is_array()) return false;
    for (const Schema& name : *required) {
      if (!name.is_string()) continue;
      const std::string& text = name.get_ref<const std::string&>();
      const Schema theirs = schema_of_property(other, text);
      if (theirs == Schema(false)) return true;
      if (!requires_property(other, text)) continue;
      if (exclusive_at(schema_of_property(one, text), theirs, pointer, depth + 1)) return true;
    }
    return false;
  };
  return differ(a, b) || differ(b, a);
}

}  // namespace redlite::constrain
