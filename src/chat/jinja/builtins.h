#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "chat/jinja/interpreter.h"

namespace redlite::chat::jinja {

// Everything throws Failure when it is given what Python would refuse.

using FilterFunction = Value (*)(Interpreter&, const Value&, Arguments);
using TestFunction = bool (*)(Interpreter&, const Value&, Arguments);

/// nullptr if there is none of this name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

/// Methods of strings, lists and dicts.
bool has_method(const Value& self, std::string_view name);
Value call_method(Interpreter& in, const Value& self, std::string_view name, Arguments arguments);

/// namespace, range, dict, raise_exception, strftime_now.
std::vector<Interpreter::Variable> global_functions();

/// a op b for the arithmetic operators.
Value arithmetic(Operator op, const Value& a, const Value& b, Budget& budget);
/// text % values, with Python's conversions.
Text percent_format(const Text& format, const Value& values, Budget& budget);
/// text.format(...).
Text brace_format(Interpreter& in, const Text& format, const Arguments& arguments);

/// The arguments of a call, by the names of its parameters.
class Parameters {
 public:
  static constexpr size_t kMax = 5;

  /// The first `required` of them must be given.
  Parameters(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
             size_t required = 0);

  /// nullptr if it was not given.
  const Value* get(size_t i) const { return given_[i] ? &values_[i] : nullptr; }
  const Value& value(size_t i) const { return values_[i]; }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const { return given_[i] ? values_[i].truth() : otherwise; }
  /// nullptr if it was not given or is none; Failure if it is no string.
  const Text* text(size_t i) const;

 private:
  std::string_view function_;
  std::array<std::string_view, kMax> names_{};
  std::array<Value, kMax> values_;
  std::array<bool, kMax> given_{};
};

}  // namespace redlite::chat::jinja
