#include <cmath>
#include <map>

#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {
namespace {

using Test = bool(Interpreter&, const Value&, Arguments);

/// A test without arguments.
template <auto holds>
bool plain(Interpreter&, const Value& value, Arguments arguments) {
  const Parameters p("the test", std::move(arguments), {});
  return holds(value);
}

/// A test with one argument.
template <auto holds>
bool compared(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("the test", std::move(arguments), {"other"}, 1);
  return holds(in, value, p.value(0));
}

bool is_sequence(const Value& v) {
  return v.text() || v.dict() || (v.list() && v.list()->kind <= List::Kind::Tuple) || v.is_undefined();
}

int64_t remainder(const Value& value, const Value& divisor) {
  if (!value.is_integer() || !divisor.is_integer()) raise("a test for divisibility of {}", value.kind());
  if (divisor.integer() == 0) raise("division by zero");
  return divisor.integer() == -1 ? 0 : value.integer() % divisor.integer();
}

bool equals(Interpreter& in, const Value& a, const Value& b) {
  return equal(a, b, in.budget());
}
bool differs(Interpreter& in, const Value& a, const Value& b) {
  return !equal(a, b, in.budget());
}
bool is_less(Interpreter& in, const Value& a, const Value& b) {
  return less(a, b, in.budget());
}
bool is_greater(Interpreter& in, const Value& a, const Value& b) {
  return less(b, a, in.budget());
}
bool at_most(Interpreter& in, const Value& a, const Value& b) {
  return is_less(in, a, b) || equals(in, a, b);
}
bool at_least(Interpreter& in, const Value& a, const Value& b) {
  return is_greater(in, a, b) || equals(in, a, b);
}

/// str.islower() and str.isupper(): there are letters with cases, and all are of that one.
template <Case wanted>
bool is_case(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("the test", std::move(arguments), {});
  const Text text = in.str(value);
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = tokenizer::decode_utf8(text.bytes(), at);
    any |= is_cased(c);
    at += bytes;
  }
  return any && change_case(text, wanted).bytes() == text.bytes();
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::map<std::string_view, Test*> kTests = {
      {"defined", plain<[](const Value& v) { return !v.is_undefined(); }>},
      {"undefined", plain<[](const Value& v) { return v.is_undefined(); }>},
      {"none", plain<[](const Value& v) { return v.is_none(); }>},
      {"boolean", plain<[](const Value& v) { return v.is_bool(); }>},
      {"true", plain<[](const Value& v) { return v.is_bool() && v.truth(); }>},
      {"false", plain<[](const Value& v) { return v.is_bool() && !v.truth(); }>},
      {"integer", plain<[](const Value& v) { return v.is_integer() && !v.is_bool(); }>},
      {"float", plain<[](const Value& v) { return v.is_float(); }>},
      {"number", plain<[](const Value& v) { return v.is_number(); }>},
      {"string", plain<[](const Value& v) { return v.text() != nullptr; }>},
      {"mapping", plain<[](const Value& v) { return v.dict() != nullptr; }>},
      {"iterable", plain<[](const Value& v) {
         return v.text() || v.dict() || v.list() || v.loop() || v.is_undefined();
       }>},
      {"sequence", plain<is_sequence>},
      {"callable", plain<[](const Value& v) { return v.callable() != nullptr; }>},
      {"escaped", plain<[](const Value&) { return false; }>},
      {"odd", plain<[](const Value& v) { return remainder(v, int64_t{2}) != 0; }>},
      {"even", plain<[](const Value& v) { return remainder(v, int64_t{2}) == 0; }>},
      {"divisibleby",
       compared<[](Interpreter&, const Value& v, const Value& by) { return remainder(v, by) == 0; }>},
      {"sameas", compared<[](Interpreter&, const Value& a, const Value& b) { return a.same_as(b); }>},
      {"eq", compared<equals>},
      {"equalto", compared<equals>},
      {"==", compared<equals>},
      {"ne", compared<differs>},
      {"!=", compared<differs>},
      {"lt", compared<is_less>},
      {"lessthan", compared<is_less>},
      {"<", compared<is_less>},
      {"gt", compared<is_greater>},
      {"greaterthan", compared<is_greater>},
      {">", compared<is_greater>},
      {"le", compared<at_most>},
      {"<=", compared<at_most>},
      {"ge", compared<at_least>},
      {">=", compared<at_least>},
      {"in", compared<[](Interpreter& in, const Value& v, const Value& all) { return in.contains(all, v); }>},
      {"lower", is_case<Case::Lower>},
      {"upper", is_case<Case::Upper>},
      {"filter", plain<[](const Value& v) { return v.text() && find_filter(v.text()->bytes()) != nullptr; }>},
      {"test", plain<[](const Value& v) { return v.text() && find_test(v.text()->bytes()) != nullptr; }>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace redlite::chat::jinja
