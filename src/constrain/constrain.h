#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "chat/answer_format.h"
#include "engine/token_filter.h"
#include "tokenizer/tokenizer.h"

namespace redlite::constrain {

/// What an answer must look like, byte for byte. Immutable and safe to share between threads.
class Grammar;

/// A JSON object of any form, after reasoning if there is some.
std::shared_ptr<const Grammar> json_object(chat::Reasoning reasoning);

/// JSON that a schema allows, after reasoning if there is some.
///
/// Members come in the order in which the schema names them; members that it does not name are written only
/// if it says so (additionalProperties true or a schema, or an object without properties). Supported: type,
/// properties, required, additionalProperties, minProperties and maxProperties of objects without named
/// properties, enum, const, anyOf, oneOf (of branches that are seen to exclude each other), allOf, $ref
/// within the schema (also recursive), items, prefixItems, minItems, maxItems, minLength, maxLength, pattern
/// (of ECMA's syntax all but look-around, word boundaries and back references), format (date, time,
/// date-time, duration, uuid, email, hostname, ipv4, ipv6, uri), minimum, maximum, exclusiveMinimum,
/// exclusiveMaximum, multipleOf (of powers of ten), and what only describes. Throws Error naming JSON pointer
/// and keyword for any other keyword of JSON Schema, for a schema that nothing finite satisfies, and for one
/// that is too deep or too large: time and memory are bounded.
std::shared_ptr<const Grammar> json_schema(const nlohmann::ordered_json& schema, chat::Reasoning reasoning);

struct ToolRules {
  /// At least one call, and no text beside calls. Otherwise the answer is free, but once a call has begun
  /// it is one of these tools with arguments that its schema allows.
  bool required = true;
  /// More than one call may follow.
  bool parallel = true;
  /// Only this tool; empty: any of them.
  std::string name = {};
  /// A tool whose schema json_schema() would refuse is an Error; otherwise its arguments may be any.
  bool strict = false;
  /// An answer without calls is JSON that this schema allows, and one with calls has nothing beside them. Not
  /// if calls are required. Throws as json_schema() does.
  std::optional<nlohmann::ordered_json> text = {};
};

/// Calls of tools in the model's format (not None). `tools` as in chat::Conversation. Throws Error for tools
/// that are malformed, for a name that no tool has, and, if strict, as json_schema() does, with the tool in
/// front of the pointer.
///
/// In the XML format parameters are those that the schema names, and a string that has a length or a pattern
/// contains no '<' but those the pattern names.
std::shared_ptr<const Grammar> tool_calls(const nlohmann::ordered_json& tools, const ToolRules& rules,
                                          chat::ToolFormat format, chat::Reasoning reasoning);

/// A model's tokens, prepared for make_filter(): built once for a model (about a tenth of a second and 19 MB
/// for 150,000 tokens). Immutable and safe to share between threads.
class Vocabulary;
std::shared_ptr<const Vocabulary> make_vocabulary(const tokenizer::Tokenizer& tokenizer);

/// The filter for one answer. With a vocabulary that has a token for every single byte, as byte-level BPE
/// has, some token is always left; otherwise apply() throws Error where none is. It keeps at most about 16
/// MB.
std::unique_ptr<engine::TokenFilter> make_filter(std::shared_ptr<const Grammar> grammar,
                                                 std::shared_ptr<const Vocabulary> vocabulary);

}  // namespace redlite::constrain
