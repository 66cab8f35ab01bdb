#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "constrain/constrain.h"
#include "sampling.h"
#include "validator.h"

namespace redlite::constrain {
namespace {

using chat::Reasoning;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

/// Each is sampled; `good` must be let through and `bad` must not.
struct Case {
  const char* schema;
  std::vector<const char*> good = {};
  std::vector<const char*> bad = {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false})",
       {R"({"name": "x", "age": 3})", "{\n  \"name\": \"\",\n  \"age\": -1\n}"},
       {R"({"name": "x"})", R"({"age": 3, "name": "x"})", R"({"name": "x", "age": 3.5})", "{}",
        R"({"name": "x", "age": 3, "z": 1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"const": [1, {"x": "y"}]}}})",
       {"{}", R"({"a":true})", R"({"b":null})", R"({"a": false,"c": [1,{"x":"y"}]})",
        R"({"a":true,"b":null,"c":[1,{"x":"y"}]})"},
       {R"({"c": [1,{"x":"y"}],"a":true})", R"({"a":true,})", R"({,"a":true})"}},
      {R"({"type": "object", "properties": {"ab": {"type": "integer"}, "é\n": {"type": "null"}}, "additionalProperties": {"type": "string"}, "required": ["ab"]})",
       {R"({"ab": 1, "a": "x", "abc": "y", "é": "", "b\n": "z"})"},
       {R"({"ab": "x"})", R"({"ab": 1, "ab": "x"})", R"({"ab": 1, "\u0061b": "x"})", R"({"ab": 1, "x": 1})",
        R"({"x": "x"})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2})",
       {R"({"x": 1})", R"({"x": 1, "y": 2})"},
       {"{}", R"({"x": 1, "y": 2, "z": 3})", R"({"x": "1"})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["k", "l"]}, "additionalProperties": {"type": "null"}})",
       {"{}", R"({"k":null})"},
       {R"({"m":null})"}},
      {R"({"type": "object", "patternProperties": {"^x-[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": false})",
       {"{}", R"({"x-ab":true})"},
       {R"({"x-1":true})", R"({"x-a":1})"}},
      {R"({"properties": {"a": {}}, "required": ["a", "more"]})",
       {R"({"a": [null], "more": {}})"},
       {R"({"a": 1})", "[]"}},
      {R"({"enum": ["a", "a\"b", 1, -2.5, null, true, {"k": ["v"]}]})",
       {"\"a\"", "\"a\\\"b\"", "1", "-2.5", "null", "true", R"({"k":["v"]})"},
       {"\"b\"", "2"}},
      {R"({"type": "string", "enum": ["a", 1, "bc"], "minLength": 2})", {"\"bc\""}, {"\"a\"", "1"}},
      {R"({"type": ["integer", "null", "array"], "items": {"type": "boolean"}, "maxItems": 1, "minimum": 7})",
       {"7", "null", "[]", "[true]"},
       {"6", "[true, true]", "[1]"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4})",
       {"[1,2]", "[1, 2, 3, 4]", "[\n  1,\n  2\n]"},
       {"[]", "[1]", "[1,2,3,4,5]", "[1,]", "[,1]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
       {"[1,\"a\"]", "[1]", "[]"},
       {"[\"a\"]", "[1,\"a\",2]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}, "minItems": 3, "maxItems": 4})",
       {"[1,\"a\",null]", "[1,\"a\",null,null]"},
       {"[1,\"a\"]", "[1,\"a\",1]", "[1,\"a\",null,null,null]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2})",
       {"[1,\"a\"]"},
       {"[1]"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"é中😀\"", R"("\n\u00e9\ud83d\ude00")"},
       {"\"a\"", "\"abcd\"", "\"\""}},
      {R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}},
      {R"({"type": "string", "maxLength": 40})", {"\"abc\""}},
      {R"({"type": "string", "minLength": 30})", {}, {"\"abc\""}},
      {R"({"type": "string", "pattern": "^[a-z]{2,4}-\\d+$"})",
       {"\"ab-1\"", "\"abcd-123\""},
       {"\"a-1\"", "\"ab-\"", "\"xab-1 \""}},
      {R"({"type": "string", "pattern": "(foo|ba[rz])+", "maxLength": 12})",
       {"\"foo\"", "\"x bar y\"", "\"😀baz\\n\""},
       {"\"fo\"", "\"\""}},
      {R"({"type": "string", "pattern": "^a", "maxLength": 3})", {"\"a\"", "\"abc\""}, {"\"b\"", "\"abcd\""}},
      {R"({"type": "string", "pattern": "x$", "minLength": 3, "maxLength": 9})",
       {"\"aax\""},
       {"\"ax\"", "\"xxa\""}},
      {R"({"allOf": [{"type": "string", "pattern": "^[ab]+$"}, {"pattern": "aa"}, {"pattern": "^b"}]})",
       {"\"baa\"", "\"baab\""},
       {"\"aa\"", "\"bab\"", "\"baac\""}},
      {R"({"type": "string", "pattern": "^[^a-y\"\\\\]*$"})",
       {"\"zzé\"", "\"\""},
       {"\"a\"", R"("\"")", R"("\\")"}},
      {R"({"type": "string", "pattern": "^\"\\\\\\n$"})", {R"("\"\\\n")"}},
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-29\"", "\"2023-12-31\""},
       {"\"2023-02-29\"", "\"2023-13-01\"", "\"2023-04-31\""}},
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-29T23:59:59Z\"", "\"2023-01-01T00:00:00.5+02:00\""},
       {"\"2023-01-01\"", "\"2023-01-01T24:00:00Z\""}},
      {R"({"type": "string", "format": "time"})", {"\"00:00:00Z\""}, {"\"0:00:00Z\""}},
      {R"({"type": "string", "format": "duration"})",
       {"\"P1Y2M3DT4H5M6S\"", "\"P3W\"", "\"PT5M\""},
       {"\"P\"", "\"PT\"", "\"P1YT\""}},
      {R"({"type": "string", "format": "uuid"})",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567\""}},
      {R"({"type": "string", "format": "email"})",
       {"\"a.b+c@example.co.uk\""},
       {"\"a\"", "\"a@b\"", "\"a..b@c.de\""}},
      {R"({"type": "string", "format": "ipv4"})", {"\"255.1.0.10\""}, {"\"256.1.0.10\"", "\"1.2.3\""}},
      {R"({"type": "string", "format": "hostname", "maxLength": 9})",
       {"\"a-b.com\""},
       {"\"-a.com\"", "\"example.com\""}},
      {R"({"type": "string", "format": "uri"})", {"\"https://a.de/b?c=d#e\""}, {"\"a\""}},
      {R"({"type": "string", "format": "no-such-format"})", {"\"a\""}},
      {R"({"type": "integer"})", {"0", "-7", "123456789012345678"}, {"01", "1.0", "-", "1e3", "+1"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 105})",
       {"-12", "-1", "0", "9", "10", "99", "100", "105"},
       {"-13", "106", "110", "1000", "-20", "-100"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12})",
       {"10", "11"},
       {"9", "12", "1"}},
      {R"({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3.5})", {"1", "3"}, {"0", "4"}},
      {R"({"type": "integer", "maximum": -5})", {"-5", "-123"}, {"-4", "0", "5"}},
      {R"({"type": "number"})", {"0", "-0.5", "1e5", "12.5E-3"}, {".5", "1.", "e5", "1e", "00"}},
      {R"({"type": "number", "minimum": -1.5, "maximum": 2.25})",
       {"-1.5", "-1", "0", "0.001", "1.999", "2.25", "2.2499", "2"},
       {"-1.51", "2.26", "3", "10", "-2", "2.250001"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
       {"0.5", "0.00001", "0.99999"},
       {"0", "0.0", "1", "1.0", "-0.5"}},
      {R"({"type": "number", "minimum": 9.99, "maximum": 100})",
       {"9.99", "9.995", "10", "99.9", "100", "100.00"},
       {"9.98", "9.9", "100.01", "9", "101"}},
      {R"({"type": "number", "exclusiveMaximum": 0})", {"-0.1", "-99"}, {"0", "-0", "-0.0", "1"}},
      {R"({"type": "number", "minimum": 0, "multipleOf": 0.01})", {"1.25", "0", "7.5"}, {"1.255", "-1"}},
      {R"({"type": "integer", "minimum": 3, "multipleOf": 1, "maximum": 3})", {"3"}, {"2", "4"}},
      {R"({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}]})",
       {"\"ab\"", R"({"k": 5})"},
       {"\"abc\"", "{}", "5"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, {"properties": {"c": {"const": 2}}, "required": ["c"]}]})",
       {R"({"a": 3, "b": 1})", R"({"a": 3, "c": 2})"},
       {R"({"a": 3})", R"({"a": 3, "b": 1, "c": 2})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}, {"type": "object", "properties": {"kind": {"enum": ["dog", "cow"]}, "s": {"type": "string"}}, "required": ["kind"]}]})",
       {R"({"kind": "cat", "n": 1})", R"({"kind": "dog"})", R"({"kind": "cow", "s": "moo"})"},
       {R"({"kind": "cat"})", R"({"kind": "dog", "n": 1})"}},
      {R"({"oneOf": [{"const": "a"}, {"const": "b"}, {"type": "integer"}, {"type": "object", "required": ["A"], "properties": {"A": {"type": "null"}}, "additionalProperties": false}, {"type": "object", "required": ["B"], "properties": {"B": {"type": "null"}}, "additionalProperties": false}]})",
       {"\"a\"", "7", R"({"B":null})"},
       {"\"c\"", "{}"}},
      {R"({"allOf": [{"$ref": "#/$defs/base"}, {"type": "object", "properties": {"b": {"type": "integer", "minimum": 5}}, "required": ["b"]}], "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "maximum": 7}}, "required": ["a"]}}})",
       {R"({"a": "x", "b": 6})"},
       {R"({"a": "x", "b": 8})", R"({"a": "x"})", R"({"b": 6})"}},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["value", "children"], "additionalProperties": false}}})",
       {R"({"value": 1, "children": [{"value": 2, "children": []}, {"value": 3, "children": [{"value":4,"children":[]}]}]})"},
       {R"({"value": 1, "children": [1]})"}},
      {R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]})",
       {R"({"next": null})", R"({"next": {"next": {"next": null}}})"},
       {"{}", R"({"next": {}})"}},
      {R"({"properties": {"a": {"$ref": "#/definitions/x~1y%20z"}}, "definitions": {"x/y z": {"type": "null"}}})",
       {R"({"a":null})"},
       {R"({"a":1})"}},
      {R"({"$ref": "#/$defs/s", "maxLength": 3, "$defs": {"s": {"type": "string", "minLength": 2}}})",
       {"\"ab\"", "\"abc\""},
       {"\"a\"", "\"abcd\""}},
      {R"({"title": "t", "description": "d", "default": 1, "examples": [2], "$schema": "s", "x-else": {}, "type": "boolean"})",
       {"true"},
       {"1"}},
      {R"({})", {"{}", "[1]", "null", "\"x\"", "-1.5e3"}, {"", "nul"}},
      {R"(true)", {"true"}},
      {R"({"type": "object", "properties": {"a": false, "b": true}, "required": ["b"]})",
       {R"({"b": 1})"},
       {R"({"a": 1, "b": 1})"}},
      {R"({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 1}, "maxItems": 2}})",
       {R"([[["a", "b"], ["c"]], []])"},
       {R"([[[]]])"}},
  };
  return kCases;
}

TEST(JsonSchema, LetsThroughWhatItAllows) {
  for (const Case& c : cases()) {
    const ordered_json schema = ordered_json::parse(c.schema);
    const auto grammar = json_schema(schema, Reasoning::None);
    const Validator validator(schema);
    for (const char* text : c.good) {
      EXPECT_TRUE(validator.valid(ordered_json::parse(text))) << c.schema << "\n" << text;
      EXPECT_TRUE(accepts(grammar, text)) << c.schema << "\n" << text;
    }
    for (const char* text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.schema << "\n" << text;
  }
}

TEST(JsonSchema, NeverAllowsWhatIsNotValid) {
  std::mt19937 random(5);
  for (const Case& c : cases()) {
    const ordered_json schema = ordered_json::parse(c.schema);
    const auto grammar = json_schema(schema, Reasoning::None);
    const Validator validator(schema);
    for (int i = 0; i < 60; ++i) {
      const Sample s = sample(grammar, random, 20);
      ASSERT_TRUE(s.ended) << c.schema << "\n" << s.text;
      const ordered_json value = ordered_json::parse(s.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << c.schema << "\n" << s.text;
      ASSERT_TRUE(validator.valid(value)) << c.schema << "\n" << s.text;
    }
  }
}

std::string error_of(const std::string& schema) {
  try {
    json_schema(ordered_json::parse(schema), Reasoning::None);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(JsonSchema, NamesWhatIsNotSupported) {
  EXPECT_EQ(error_of(R"({"type": "object", "properties": {"a/b": {"not": {}}}})"),
            "schema#/properties/a~1b/not: this keyword is not supported");
  for (const char* keyword :
       {"if", "dependentRequired", "contains", "unevaluatedProperties", "$dynamicRef"}) {
    EXPECT_EQ(error_of(R"({"items": {")" + std::string(keyword) + R"(": {}}})"),
              "schema#/items/" + std::string(keyword) + ": this keyword is not supported");
  }
  EXPECT_EQ(error_of(R"({"type": "array", "uniqueItems": true})"),
            "schema#/uniqueItems: this keyword is not supported");
  EXPECT_EQ(error_of(R"({"type": "array", "uniqueItems": false})"), "no error");
  EXPECT_EQ(error_of(R"x({"type": "string", "pattern": "a(?=b)"})x"),
            "schema#/pattern: look-around is not supported at byte 3 of 'a(?=b)'");
  EXPECT_THAT(error_of(R"x({"type": "string", "pattern": "(a"})x"),
              HasSubstr("schema#/pattern: a group that does not end"));
  EXPECT_THAT(error_of(R"({"type": "integer", "multipleOf": 7})"),
              HasSubstr("schema#/multipleOf: only 1, 0.1"));
  EXPECT_THAT(error_of(R"({"type": "bogus"})"), HasSubstr("schema#/type: no such type"));
  EXPECT_THAT(error_of(R"({"type": ["string", 5]})"), HasSubstr("schema#/type: no such type"));
  EXPECT_THAT(error_of(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"),
              HasSubstr("schema#/oneOf: a value may satisfy the branches 0 and 1"));
  EXPECT_THAT(error_of(R"({"$ref": "https://example.com/x"})"),
              HasSubstr("schema#/$ref: only references within"));
  EXPECT_THAT(error_of(R"({"properties": {"a": {"$ref": "#/$defs/none"}}})"),
              HasSubstr("schema#/properties/a/$ref: there is no '#/$defs/none'"));
  EXPECT_THAT(error_of(R"({"enum": ["a"], "pattern": "b"})"),
              HasSubstr("schema#/pattern: not supported beside enum"));
  EXPECT_THAT(error_of(R"({"properties": {"a": {}}, "minProperties": 3})"),
              HasSubstr("schema#/minProperties: not supp"));
}

TEST(JsonSchema, RefusesWhatIsNoSchema) {
  for (const char* bad :
       {"1", "\"string\"", "null", "[]", R"({"properties": []})", R"({"properties": {"a": 1}})",
        R"({"required": "a"})", R"({"required": [1], "type": "object"})", R"({"anyOf": []})",
        R"({"anyOf": {}})", R"({"allOf": {}})", R"({"enum": 1})", R"({"type": "array", "minItems": -1})",
        R"({"type": "array", "minItems": 1.5})", R"({"type": "string", "maxLength": "x"})",
        R"({"type": "number", "minimum": "x"})", R"({"type": "string", "pattern": 1})", R"({"$ref": 1})",
        R"({"prefixItems": {}})"}) {
    EXPECT_THAT(error_of(bad), HasSubstr("schema")) << bad;
  }
}

TEST(JsonSchema, RefusesWhatNothingSatisfies) {
  for (const char* bad :
       {"false", R"({"enum": []})", R"({"type": "string", "minLength": 3, "maxLength": 2})",
        R"({"type": "integer", "minimum": 3, "maximum": 2})",
        R"({"type": "integer", "minimum": 3.2, "maximum": 3.8})",
        R"({"type": "array", "minItems": 2, "maxItems": 1})",
        R"({"type": "object", "properties": {"a": false}, "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"allOf": [{"type": "string"}, {"type": "integer"}]})",
        R"({"type": "string", "pattern": "^a$", "minLength": 2})", R"({"type": "string", "pattern": "a^"})",
        R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
        R"({"allOf": [{"const": 1}, {"const": 2}]})"}) {
    EXPECT_THAT(error_of(bad), HasSubstr("nothing finite satisfies it")) << bad;
  }
}

TEST(JsonSchema, RefusesCircles) {
  EXPECT_THAT(error_of(R"({"$ref": "#"})"), HasSubstr("refers to itself"));
  EXPECT_THAT(
      error_of(
          R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}})"),
      HasSubstr("refers to itself"));
  EXPECT_THAT(error_of(R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})"), HasSubstr("circle"));
  EXPECT_THAT(
      error_of(
          R"({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": {"$ref": "#/$defs/a", "maxLength": 3}}})"),
      HasSubstr("circle"));
}

TEST(JsonSchema, BoundsWhatIsHostile) {
  const auto nested = [](const std::string& open, const std::string& core, const std::string& close, int n) {
    std::string out = core;
    for (int i = 0; i < n; ++i) out = open + out + close;
    return out;
  };
  EXPECT_THAT(error_of(nested(R"({"items":)", "{}", "}", 1000)), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(nested(R"({"anyOf":[{"type":"null"},)", "{}", "]}", 60)), HasSubstr("no error"));
  EXPECT_THAT(error_of(R"({"enum": [)" + nested("[", "1", "]", 1000) + "]}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(R"({"type": "string", "pattern": "(((a{100}){100}){100}){100}"})"),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"type": "string", "pattern": "a{99999999999}"})"), HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"type": "string", "pattern": ")" + nested("(", "a", ")", 500) + "\"}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(R"({"type": "string", "pattern": "^(a?){500}b", "maxLength": 100000})"),
              HasSubstr("too large"));
  EXPECT_EQ(error_of(R"({"type": "string", "minLength": 1000000000})"), "no error");
  EXPECT_EQ(error_of(R"({"type": "array", "minItems": 1000000000, "items": {}})"), "no error");
  std::string branches;
  for (int n = 0; n < 20; ++n)
    branches += fmt::format(R"({{"anyOf": [{{"minLength": {0}}}, {{"maxLength": {0}}}]}},)", n);
  EXPECT_THAT(error_of(R"({"allOf": [)" + branches + "{}]}"), HasSubstr("too many combinations"));
  // Each reference doubles what the last one stands for.
  std::string definitions = R"("d0": {"type": "string"})";
  for (int i = 1; i < 40; ++i)
    definitions += fmt::format(
        R"(, "d{0}": {{"properties": {{"a": {{"$ref": "#/$defs/d{1}"}}, "b": {{"$ref": "#/$defs/d{1}"}}}}, "allOf": [{{"$ref": "#/$defs/d{1}"}}, {{"$ref": "#/$defs/d{1}"}}]}})",
        i, i - 1);
  EXPECT_NE(error_of(R"({"$ref": "#/$defs/d39", "$defs": {)" + definitions + "}}"), "");
  std::string large = R"({"enum": [)";
  for (int i = 0; i < 50'000; ++i) large += fmt::format("\"value number {}\", ", i);
  EXPECT_THAT(error_of(large + "1]}"), HasSubstr("too large"));
}

/// Schemas whose places, or stacks, multiply with every byte: each token is still found soon, and the answer
/// is valid.
TEST(JsonSchema, FollowsWhatIsAmbiguous) {
  std::mt19937 random(6);
  for (
      const char* text :
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 5}, {"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 6}, {"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 7}]}}})",
       R"({"type": "string", "pattern": "^(.?){100}$"})",
       R"({"type": "string", "pattern": "(a|a|b)*(a|b)*x.{0,60}y.{60}"})",
       R"({"type": "string", "pattern": "((((.*)*)*)*)*$", "minLength": 20, "maxLength": 60})"}) {
    const ordered_json schema = ordered_json::parse(text);
    const auto grammar = json_schema(schema, Reasoning::None);
    for (int i = 0; i < 2; ++i) {
      const Sample s = sample(grammar, random, 25, {}, 50);
      const ordered_json value = ordered_json::parse(s.text, nullptr, false);
      if (s.ended) {
        EXPECT_FALSE(value.is_discarded()) << text << "\n" << s.text;
      }
    }
  }
}

}  // namespace
}  // namespace redlite::constrain
