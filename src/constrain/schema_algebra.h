#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace redlite::constrain {

using Schema = nlohmann::ordered_json;

/// Calculations with JSON schemas of one document.
class SchemaAlgebra {
 public:
  /// `root` must outlive it. `where` starts the messages of errors.
  SchemaAlgebra(const Schema& root, std::string where) : root_(root), where_(std::move(where)) {}

  /// Throws Error: "<where>#/pointer: message".
  [[noreturn]] void wrong(const std::string& pointer, std::string_view message) const;

  /// What $ref points to.
  const Schema& resolve(const std::string& reference, const std::string& pointer) const;

  /// A schema that allows what both allow, without $ref and allOf at its top. Throws Error where that cannot
  /// be written down.
  Schema both(const Schema& a, const Schema& b, const std::string& pointer) const;

  /// The schema without $ref and allOf at its top.
  Schema flatten(const Schema& schema, const std::string& pointer) const;

  /// True if certainly no value satisfies both.
  bool exclusive(const Schema& a, const Schema& b, const std::string& pointer) const {
    return exclusive_at(a, b, pointer, 0);
  }

 private:
  Schema flatten_at(const Schema& schema, const std::string& pointer, int depth) const;
  bool exclusive_at(const Schema& a, const Schema& b, const std::string& pointer, int depth) const;
  Schema both_flat(Schema a, const Schema& b, const std::string& pointer) const;
  void join_objects(Schema& a, const Schema& b, const std::string& pointer) const;
  void join_arrays(Schema& a, const Schema& b, const std::string& pointer) const;

  void count_copy(const Schema& schema, const std::string& pointer) const;

  const Schema& root_;
  std::string where_;
  mutable size_t n_copied_ = 0;  ///< values, so far: what references make of a schema is bounded
};

/// Keywords that only describe.
bool is_annotation(std::string_view keyword);

/// The schema's `types` (chat::JsonTypes), as its type, enum and const say; any, if they do not.
uint8_t stated_types(const Schema& schema);
uint8_t type_of_value(const Schema& value);

/// A step of a JSON pointer.
std::string below(const std::string& pointer, std::string_view step);

/// As nested as `limit` levels at most?
bool is_shallow(const Schema& value, int limit);

}  // namespace redlite::constrain
