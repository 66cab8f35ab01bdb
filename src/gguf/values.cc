// Typed look-ups of metadata.

#include "gguf/gguf.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::gguf {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

template <typename T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

[[noreturn]] void fail_kind(const std::string& path, std::string_view key, ValueType type,
                            std::string_view wanted) {
  fail("{}: metadata key {} is of type {}, but {} is wanted", path, quote(key), name(type), wanted);
}

uint64_t to_uint(const std::string& path, std::string_view key, Integer auto value) {
  if constexpr (std::signed_integral<decltype(value)>) {
    if (value < 0) fail("{}: metadata key {} is {}, but must not be negative", path, quote(key), value);
  }
  return static_cast<uint64_t>(value);
}

}  // namespace

std::string_view name(ValueType type) {
  return kTypeNames[static_cast<uint32_t>(type)];
}

const Value* File::find_value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::optional<uint64_t> File::get_uint(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  return std::visit(
      [&](const auto& v) -> uint64_t {
        if constexpr (Integer<std::decay_t<decltype(v)>>) {
          return to_uint(path_, key, v);
        } else {
          fail_kind(path_, key, type_of(*value), "an integer");
        }
      },
      *value);
}

std::optional<double> File::get_float(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<float>(value)) return *v;
  if (const auto* v = std::get_if<double>(value)) return *v;
  fail_kind(path_, key, type_of(*value), "a floating-point number");
}

std::optional<bool> File::get_bool(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<bool>(value)) return *v;
  fail_kind(path_, key, type_of(*value), "a boolean");
}

std::optional<std::string> File::get_string(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<std::string>(value)) return *v;
  fail_kind(path_, key, type_of(*value), "a string");
}

const Array* File::find_array(std::string_view key, std::string_view wanted) const {
  const Value* value = find_value(key);
  if (value == nullptr) return nullptr;
  if (const auto* v = std::get_if<std::shared_ptr<const Array>>(value)) return v->get();
  fail_kind(path_, key, type_of(*value), wanted);
}

std::optional<std::vector<std::string>> File::get_strings(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of strings";
  const Array* array = find_array(key, kWanted);
  if (array == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<std::vector<std::string>>(&array->values)) return *v;
  fail_kind(path_, key, array->type(), kWanted);
}

std::optional<std::vector<bool>> File::get_bools(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of booleans";
  const Array* array = find_array(key, kWanted);
  if (array == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<std::vector<bool>>(&array->values)) return *v;
  fail_kind(path_, key, array->type(), kWanted);
}

std::optional<std::vector<uint64_t>> File::get_uints(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of integers";
  const Array* array = find_array(key, kWanted);
  if (array == nullptr) return std::nullopt;
  return std::visit(
      [&]<typename T>(const std::vector<T>& values) -> std::vector<uint64_t> {
        if constexpr (Integer<T>) {
          std::vector<uint64_t> result(values.size());
          std::ranges::transform(values, result.begin(), [&](T v) { return to_uint(path_, key, v); });
          return result;
        } else {
          fail_kind(path_, key, array->type(), kWanted);
        }
      },
      array->values);
}

std::optional<std::vector<double>> File::get_floats(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of floating-point numbers";
  const Array* array = find_array(key, kWanted);
  if (array == nullptr) return std::nullopt;
  if (const auto* v = std::get_if<std::vector<double>>(&array->values)) return *v;
  if (const auto* v = std::get_if<std::vector<float>>(&array->values)) {
    return std::vector<double>(v->begin(), v->end());
  }
  fail_kind(path_, key, array->type(), kWanted);
}

}  // namespace redlite::gguf
