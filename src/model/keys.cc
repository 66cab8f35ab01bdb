#include "model/keys.h"

#include <cmath>
#include <concepts>
#include <variant>

#include "base/error.h"

namespace redlite::model {

namespace {

// The value as a non-negative integer, or nullopt. Booleans count as 0 and 1.
std::optional<uint64_t> as_integer(const gguf::Value& value) {
  return std::visit(
      [](const auto& v) -> std::optional<uint64_t> {
        if constexpr (std::integral<std::decay_t<decltype(v)>>) {
          if (std::cmp_less(static_cast<int64_t>(v), 0) && std::is_signed_v<std::decay_t<decltype(v)>>)
            return std::nullopt;
          return static_cast<uint64_t>(v);
        } else {
          return std::nullopt;
        }
      },
      value);
}

}  // namespace

void Keys::reject(std::string_view key, std::string_view reason) const {
  fail("{}: {}: {}", file_.path(), name(key), reason);
}

std::optional<std::vector<uint64_t>> Keys::find_integers(std::string_view key) const {
  const gguf::Value* value = file_.find_value(name(key));
  if (!value) return std::nullopt;
  std::vector<uint64_t> out;
  const auto add = [&](const gguf::Value& v) {
    const std::optional<uint64_t> integer = as_integer(v);
    if (!integer) reject(key, "has to hold non-negative whole numbers");
    out.push_back(*integer);
  };
  if (const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(value)) {
    for (const gguf::Value& v : (*array)->values) add(v);
  } else {
    add(*value);
  }
  return out;
}

std::optional<int> Keys::find_count(std::string_view key) const {
  const std::optional<std::vector<uint64_t>> values = find_integers(key);
  if (!values) return std::nullopt;
  if (values->empty()) reject(key, "is an empty array");
  const uint64_t first = values->front();
  for (const uint64_t v : *values)
    if (v != first)
      reject(key, fmt::format("differs between layers ({} and {}), which is not supported", first, v));
  if (first < 1 || first > kMaxCount)
    reject(key, fmt::format("is {}, which is outside [1, {}]", first, kMaxCount));
  return static_cast<int>(first);
}

int Keys::count(std::string_view key) const {
  const std::optional<int> value = find_count(key);
  if (!value) reject(key, "is missing");
  return *value;
}

std::optional<double> Keys::find_number(std::string_view key) const {
  const std::optional<double> value = file_.get_float(name(key));
  if (value && !std::isfinite(*value)) reject(key, "is not a finite number");
  return value;
}

double Keys::number(std::string_view key) const {
  const std::optional<double> value = find_number(key);
  if (!value) reject(key, "is missing");
  return *value;
}

std::optional<std::string> Keys::find_string(std::string_view key) const {
  return file_.get_string(name(key));
}

}  // namespace redlite::model
