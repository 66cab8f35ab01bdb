#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace redlite::chat {

inline constexpr std::string_view kJsonBlanks = " \t\r\n";

/// Types of JSON values, as a set.
enum JsonTypes : uint8_t {
  kString = 1,
  kInteger = 2,
  kNumber = 4,  ///< that is no integer, too
  kBoolean = 8,
  kNull = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};

/// The types that a JSON schema allows, looked at from outside: type, enum, const, anyOf, oneOf, allOf and
/// $ref into `root`. What cannot be made out allows any.
uint8_t allowed_types(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

/// What the tools of a request say about the arguments of their calls. Odd tools are left out.
class ToolSchemas {
 public:
  /// An array of {"type": "function", "function": {"name", "parameters"}}, or of the inner objects; or null.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool empty() const { return parameters_.empty(); }
  bool has(std::string_view tool) const { return parameters_.contains(tool); }
  bool has(std::string_view tool, std::string_view parameter) const;
  /// String, if nothing is known of the parameter.
  uint8_t types(std::string_view tool, std::string_view parameter) const;

 private:
  using Types = std::map<std::string, uint8_t, std::less<>>;
  static void add_properties(Types& types, const nlohmann::ordered_json& schema,
                             const nlohmann::ordered_json& root, int depth);

  std::map<std::string, Types, std::less<>> parameters_;
};

/// An argument that was written as plain text, as JSON of one of these types if it can be read as such (also
/// Python's True, False and None), otherwise as a string.
std::string argument_as_json(std::string_view text, uint8_t types);

/// The text as it stands between the quotes of a JSON string; other bytes than control characters, quotes and
/// backslashes stay as they are.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace redlite::chat
