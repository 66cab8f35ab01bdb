#include "model/keys.h"

#include <cmath>
#include <variant>

#include "base/error.h"

namespace redlite::model {

void Keys::reject(std::string_view key, std::string_view reason) const {
  fail("{}: {}: {}", file_.path(), name(key), reason);
}

std::optional<std::vector<uint64_t>> Keys::find_integers(std::string_view key) const {
  const std::string full = name(key);
  const gguf::Value* value = file_.find_value(full);
  if (!value) return std::nullopt;
  if (const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(value)) {
    if ((*array)->type() != gguf::ValueType::Bool) return file_.get_uints(full);
    const std::vector<bool> flags = *file_.get_bools(full);
    return std::vector<uint64_t>(flags.begin(), flags.end());
  }
  if (const auto* flag = std::get_if<bool>(value)) return std::vector<uint64_t>{*flag};
  return std::vector<uint64_t>{*file_.get_uint(full)};
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
