#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace redlite::constrain {

/// Whether a value satisfies a JSON schema: written from the standard, as plainly as possible, and without
/// anything of what it checks. Patterns are of ASCII.
class Validator {
 public:
  using Json = nlohmann::ordered_json;
  explicit Validator(const Json& root) : root_(root) {}

  bool valid(const Json& value) const { return valid(root_, value); }
  bool valid(const Json& schema, const Json& v) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [key, k] : schema.items())
      if (!check(schema, key, k, v)) return false;
    return true;
  }

 private:
  static bool is_integer(const Json& v) {
    return v.is_number_integer() || (v.is_number() && v.get<double>() == std::floor(v.get<double>()));
  }
  static bool has_type(const Json& v, const std::string& type) {
    return type == "integer"   ? is_integer(v)
           : type == "number"  ? v.is_number()
           : type == "string"  ? v.is_string()
           : type == "boolean" ? v.is_boolean()
           : type == "null"    ? v.is_null()
           : type == "array"   ? v.is_array()
                               : v.is_object();
  }
  static size_t length(const std::string& text) {
    size_t n = 0;
    for (const char c : text) n += (static_cast<uint8_t>(c) & 0xc0) != 0x80;
    return n;
  }
  size_t count_valid(const Json& schemas, const Json& v) const {
    size_t n = 0;
    for (const Json& schema : schemas) n += valid(schema, v);
    return n;
  }
  static bool has_format(const std::string& text, const std::string& format) {
    // Looser than the formats, but by other means.
    int year = 0, month = 0, day = 0, read = 0;
    if (format == "date" || format == "date-time") {
      if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &read) != 3 || read != 10)
        return false;
      constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
      const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
      if (month < 1 || month > 12 || day < 1 || day > kDays[month - 1] + (month == 2 && leap)) return false;
      return format == "date" ? text.size() == 10 : text[10] == 'T' && text.size() >= 20;
    }
    if (format == "uuid")
      return std::regex_match(text, std::regex("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"));
    if (format == "email") return std::regex_match(text, std::regex("[^@ ]+@[^@ .]+(\\.[^@ .]+)+"));
    if (format == "ipv4") return std::regex_match(text, std::regex("(\\d{1,3}\\.){3}\\d{1,3}"));
    return true;
  }

  bool check(const Json& schema, const std::string& key, const Json& k, const Json& v) const {
    const auto number = [&] { return v.get<double>(); };
    if (key == "$ref") {
      std::string path = k.get<std::string>().substr(1);
      if (const size_t at = path.find("%20"); at != std::string::npos) path.replace(at, 3, " ");
      return valid(root_.at(Json::json_pointer(path)), v);
    }
    if (key == "type") {
      if (k.is_string()) return has_type(v, k.get<std::string>());
      return std::any_of(k.begin(), k.end(),
                         [&](const Json& t) { return has_type(v, t.get<std::string>()); });
    }
    if (key == "enum") return std::find(k.begin(), k.end(), v) != k.end();
    if (key == "const") return v == k;
    if (key == "anyOf") return count_valid(k, v) > 0;
    if (key == "oneOf") return count_valid(k, v) == 1;
    if (key == "allOf") return count_valid(k, v) == k.size();
    if (v.is_number()) {
      if (key == "minimum") return number() >= k.get<double>();
      if (key == "maximum") return number() <= k.get<double>();
      if (key == "exclusiveMinimum") return number() > k.get<double>();
      if (key == "exclusiveMaximum") return number() < k.get<double>();
      if (key == "multipleOf")
        return std::abs(std::remainder(number(), k.get<double>())) < 1e-9 * std::max(1.0, std::abs(number()));
    }
    if (v.is_string()) {
      const std::string text = v.get<std::string>();
      if (key == "minLength") return length(text) >= k.get<size_t>();
      if (key == "maxLength") return length(text) <= k.get<size_t>();
      if (key == "pattern") return std::regex_search(text, std::regex(k.get<std::string>()));
      if (key == "format") return has_format(text, k.get<std::string>());
    }
    if (v.is_array()) {
      const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
      if (key == "minItems") return v.size() >= k.get<size_t>();
      if (key == "maxItems") return v.size() <= k.get<size_t>();
      if (key == "prefixItems") {
        for (size_t i = 0; i < std::min(prefix, v.size()); ++i)
          if (!valid(k[i], v[i])) return false;
      }
      if (key == "items") {
        for (size_t i = prefix; i < v.size(); ++i)
          if (!valid(k, v[i])) return false;
      }
    }
    if (v.is_object()) {
      if (key == "minProperties") return v.size() >= k.get<size_t>();
      if (key == "maxProperties") return v.size() <= k.get<size_t>();
      if (key == "required")
        return std::all_of(k.begin(), k.end(),
                           [&](const Json& name) { return v.contains(name.get<std::string>()); });
      for (const auto& [name, inner] : v.items()) {
        const bool named = schema.contains("properties") && schema["properties"].contains(name);
        if (key == "properties" && named && !valid(k[name], inner)) return false;
        if (key == "additionalProperties" && !named && !schema.contains("patternProperties") &&
            !valid(k, inner))
          return false;
        if (key == "propertyNames" && !valid(k, name)) return false;
        if (key == "patternProperties") {
          for (const auto& [pattern, s] : k.items()) {
            const bool matches = std::regex_search(name, std::regex(pattern));
            if (matches && !valid(s, inner)) return false;
            if (!matches && schema.contains("additionalProperties") &&
                schema["additionalProperties"] == Json(false))
              return false;
          }
        }
      }
    }
    return true;
  }

  const Json& root_;
};

}  // namespace redlite::constrain
