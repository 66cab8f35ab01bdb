#include "chat/tool_schemas.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace redlite::chat {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxSchemaDepth = 16;

uint8_t type_named(const ordered_json& name) {
  if (name == "string") return kString;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kNumber;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return kAnyType;
}

uint8_t json_type(const ordered_json& value) {
  switch (value.type()) {
    case ordered_json::value_t::string:
      return kString;
    case ordered_json::value_t::boolean:
      return kBoolean;
    case ordered_json::value_t::null:
      return kNull;
    case ordered_json::value_t::array:
      return kArray;
    case ordered_json::value_t::object:
      return kObject;
    case ordered_json::value_t::number_integer:
    case ordered_json::value_t::number_unsigned:
      return kInteger;
    case ordered_json::value_t::number_float: {
      const double v = value.get<double>();
      return v == std::floor(v) && std::abs(v) < 0x1p53 ? kInteger : kNumber;
    }
    default:
      return 0;
  }
}

template <typename Fn>
uint8_t union_of(const ordered_json& list, Fn types) {
  uint8_t out = 0;
  for (const ordered_json& entry : list) out |= types(entry);
  return out;
}

uint8_t schema_types(const ordered_json& schema, const ordered_json& root, int depth);

/// What a reference into the root leads to; null if it leads nowhere.
const ordered_json* find_reference(const ordered_json& reference, const ordered_json& root) {
  if (!reference.is_string()) return nullptr;
  const std::string& text = reference.get_ref<const std::string&>();
  if (!text.starts_with("#")) return nullptr;
  try {
    return &root.at(ordered_json::json_pointer(text.substr(1)));
  } catch (const ordered_json::exception&) {
    return nullptr;
  }
}

uint8_t schema_types(const ordered_json& schema, const ordered_json& root, int depth) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return kAnyType;
  const auto inner = [&](const ordered_json& branch) { return schema_types(branch, root, depth + 1); };
  uint8_t types = kAnyType;
  for (const auto& [key, value] : schema.items()) {
    if (key == "type") {
      types &= value.is_array() ? union_of(value, type_named) : type_named(value);
    } else if (key == "enum" && value.is_array()) {
      types &= union_of(value, json_type);
    } else if (key == "const") {
      types &= json_type(value);
    } else if ((key == "anyOf" || key == "oneOf") && value.is_array()) {
      types &= union_of(value, inner);
    } else if (key == "allOf" && value.is_array()) {
      for (const ordered_json& branch : value) types &= inner(branch);
    } else if (key == "$ref") {
      if (const ordered_json* target = find_reference(value, root))
        types &= schema_types(*target, root, depth + 1);
    }
  }
  return types;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  out += '"';
  return out;
}

}  // namespace

uint8_t allowed_types(const ordered_json& schema, const ordered_json& root) {
  return schema_types(schema, root, 0);
}

void ToolSchemas::add_properties(Types& types, const ordered_json& schema, const ordered_json& root,
                                 int depth) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return;
  for (const auto& [key, value] : schema.items()) {
    if (key == "properties" && value.is_object()) {
      for (const auto& [name, property] : value.items()) {
        const uint8_t allowed = allowed_types(property, root);
        const auto [known, is_new] = types.try_emplace(name, allowed);
        if (!is_new) known->second |= allowed;
      }
    } else if ((key == "allOf" || key == "anyOf" || key == "oneOf") && value.is_array()) {
      for (const ordered_json& branch : value) add_properties(types, branch, root, depth + 1);
    } else if (key == "$ref") {
      if (const ordered_json* target = find_reference(value, root))
        add_properties(types, *target, root, depth + 1);
    }
  }
}

ToolSchemas::ToolSchemas(const ordered_json& tools) {
  if (!tools.is_array()) return;
  for (const ordered_json& tool : tools) {
    if (!tool.is_object()) continue;
    const ordered_json& function =
        tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    Types& types = parameters_[name->get_ref<const std::string&>()];
    const auto schema = function.find("parameters");
    if (schema == function.end() || !schema->is_object()) continue;
    add_properties(types, *schema, *schema, 0);
  }
}

bool ToolSchemas::has(std::string_view tool, std::string_view parameter) const {
  const auto found = parameters_.find(tool);
  return found != parameters_.end() && found->second.contains(parameter);
}

uint8_t ToolSchemas::types(std::string_view tool, std::string_view parameter) const {
  return has(tool, parameter) ? parameters_.find(tool)->second.find(parameter)->second : uint8_t{kString};
}

std::string argument_as_json(std::string_view text, uint8_t types) {
  if (types == kString) return in_quotes(text);
  const size_t begin = text.find_first_not_of(kJsonBlanks);
  if (begin == std::string_view::npos) return in_quotes(text);
  std::string_view value = text.substr(begin, text.find_last_not_of(kJsonBlanks) + 1 - begin);
  if (value == "True") value = "true";
  if (value == "False") value = "false";
  if (value == "None") value = "null";
  const ordered_json parsed = ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return in_quotes(text);
  const uint8_t type = json_type(parsed);
  if (types == kAnyType) return type & (kArray | kObject) ? std::string(value) : in_quotes(text);
  if (type != kString && (type & types)) {
    if (type == kInteger && !(types & kNumber) && parsed.is_number_float()) {
      return fmt::format("{}", static_cast<int64_t>(parsed.get<double>()));
    }
    return std::string(value);
  }
  return types & kString ? in_quotes(text) : std::string(value);
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

}  // namespace redlite::chat
