#include "server/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redlite::server {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& body) {
  try {
    parse_body(body);
    return "";
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status(), 400);
    return e.what();
  }
}

TEST(Json, BodiesAreObjects) {
  EXPECT_EQ(parse_body(R"({"a": [1, {"b": "\u00e9"}]})")["a"][1]["b"], "\xc3\xa9");
  for (const char* body :
       {"", "[]", "1", "null", "{", "{\"a\":1,}", "{} {}", "{'a':1}", "// c\n{}", "NaN", "{\"a\":NaN}"})
    EXPECT_NE(refusal(body), "") << body;
}

TEST(Json, HostileBodiesAreRefused) {
  using namespace std::string_literals;
  EXPECT_THAT(refusal("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested"));
  EXPECT_EQ(refusal("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}"), "");
  EXPECT_THAT(refusal("{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}"), HasSubstr("nested"));
  std::string objects = "{\"a\":1}";
  for (int i = 0; i < 100; ++i) objects = "{\"a\":" + objects + "}";
  EXPECT_THAT(refusal(objects), HasSubstr("nested"));

  std::string zeros = "{\"a\":[0";
  for (int i = 0; i < kMaxValues; ++i) zeros += ",0";
  EXPECT_THAT(refusal(zeros + "]}"), HasSubstr("values"));
  std::string arrays = "{\"a\":[[]";
  for (int i = 0; i < kMaxLarge; ++i) arrays += ",[]";
  EXPECT_THAT(refusal(arrays + "]}"), HasSubstr("no numbers"));
  std::string keys = "{\"x\":{\"0\":0";
  for (int i = 1; i <= kMaxKeysOfObject; ++i) keys += fmt::format(",\"{}\":0", i);
  EXPECT_THAT(refusal(keys + "}}"), HasSubstr("keys"));

  EXPECT_NE(refusal("{\"a\":\"\xff\"}"), "");
  EXPECT_NE(refusal("{\"a\":\"\xc3\"}"), "");
  EXPECT_NE(refusal("{\"a\":\"\xed\xa0\x80\"}"), "");  // a surrogate
  EXPECT_NE(refusal("{\"a\":\"\\ud800\"}"), "");
  EXPECT_NE(refusal("{\"a\":\"\0\"}"s), "");
  EXPECT_NE(refusal("{\"a\":1e999}"), "");
  EXPECT_EQ(parse_body("{\"a\":\"\\u0000\"}")["a"], "\0"s);
}

TEST(Json, NodesSayWhereTheyAre) {
  const Json json = Json::parse(R"({"list": [{"n": 3.0, "s": "x", "null": null, "big": 1e18, "f": 0.5}]})");
  const Node item = Node(json).at("list").array()[0];
  EXPECT_EQ(item.at("n").integer(0, 5), 3);
  EXPECT_FALSE(item.find("null"));
  EXPECT_FALSE(item.find("missing"));
  EXPECT_EQ(item.string_or("missing", "y"), "y");
  EXPECT_EQ(item.boolean_or("missing", true), true);
  const auto message = [](auto call) -> std::pair<std::string, std::string> {
    try {
      call();
      return {};
    } catch (const ApiError& e) {
      return {e.what(), e.parameter()};
    }
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(message([&] { item.at("n").integer(0, 2); }),
            Pair("list[0].n: must be a whole number from 0 to 2", "list[0].n"));
  EXPECT_EQ(message([&] { item.at("f").integer(0, 2); }).second, "list[0].f");
  EXPECT_EQ(message([&] { item.at("big").integer(0, 2); }).second, "list[0].big");
  EXPECT_EQ(message([&] { item.at("s").number(0, 2); }),
            Pair("list[0].s: must be a number from 0 to 2", "list[0].s"));
  EXPECT_EQ(message([&] { item.at("s").boolean(); }), Pair("list[0].s: must be true or false", "list[0].s"));
  EXPECT_EQ(message([&] { item.at("n").string(); }), Pair("list[0].n: must be a string", "list[0].n"));
  EXPECT_EQ(message([&] { item.at("n").array(); }), Pair("list[0].n: must be an array", "list[0].n"));
  EXPECT_EQ(message([&] { item.at("n").at("x"); }), Pair("list[0].n: must be an object", "list[0].n"));
  EXPECT_EQ(message([&] { item.at("null"); }), Pair("list[0].null: is missing", "list[0].null"));
}

TEST(Json, TextIsValidWhateverItIsMadeOf) {
  EXPECT_EQ(to_text({{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(short_number(0.7f).dump(), "0.7");
}

}  // namespace
}  // namespace redlite::server
