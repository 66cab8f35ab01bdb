#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace redlite::server {

using Json = nlohmann::ordered_json;

/// The most that a request's JSON may hold: a bound of its memory besides its length.
inline constexpr int kMaxDepth = 64;        ///< objects and arrays in one another
inline constexpr int kMaxValues = 400'000;  ///< prompts may be lists of token ids
inline constexpr int kMaxLarge = 100'000;   ///< of these, those that are no numbers
inline constexpr int kMaxKeysOfObject = 1000;

/// Parses the body of a request. Throws ApiError (400) for what is no JSON, no object, or beyond the limits.
Json parse_body(std::string_view text);

/// JSON as text; bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);

/// A number as short as it was written: 0.7f is 0.7, not 0.699999988.
Json short_number(float value);

/// A value in a request, which knows where it stands in it. What is not as it should be throws an ApiError
/// that names the place: "messages[2].content: must be a string". Lives as long as the JSON.
class Node {
 public:
  explicit Node(const Json& json, std::string path = "") : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }

  bool is_string() const { return json_->is_string(); }
  bool is_object() const { return json_->is_object(); }
  bool is_array() const { return json_->is_array(); }

  const std::string& string() const;
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number(double low, double high) const;
  const Json& object() const;
  std::vector<Node> array() const;

  /// A member of this object; null counts as absent.
  std::optional<Node> find(std::string_view key) const;
  Node at(std::string_view key) const;  ///< that must be there

  std::string string_or(std::string_view key, std::string_view otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;

  [[noreturn]] void refuse(std::string_view what) const;

 private:
  const Json* json_;
  std::string path_;
};

}  // namespace redlite::server
