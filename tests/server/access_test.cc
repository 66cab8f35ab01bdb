#include "server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redlite::server {
namespace {

http::Head head(const std::string& headers, const std::string& line = "POST /v1/x HTTP/1.1") {
  return http::parse_head(line + "\r\n" + headers + "\r\n");
}

int origin_refusal(const Access& access, const http::Head& head) {
  try {
    access.check_origin(head);
    return 0;
  } catch (const http::Refused& e) {
    return e.status();
  }
}

int key_refusal(const Access& access, const std::string& headers) {
  try {
    access.check_key(head("Host: localhost\r\n" + headers));
    return 0;
  } catch (const http::Refused& e) {
    return e.status();
  }
}

TEST(Access, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost"})
    EXPECT_TRUE(is_loopback(host));
  for (const char* host : {"0.0.0.0", "::", "192.168.0.1", "localhost.evil.example", "1270.0.1", ""})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Access, NamesOfOthersAreRefusedWithoutAKey) {
  const Access access({.keys = {}, .host = "box.local"});
  for (const char* host :
       {"127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "192.168.1.5:80", "box.local"})
    EXPECT_EQ(origin_refusal(access, head(fmt::format("Host: {}\r\n", host))), 0) << host;
  for (const char* host : {"evil.example:8080", "evil.example", "localhost.evil.example",
                           "127.0.0.1.evil.example", "", "[::1", "localhost@evil.example", "1.2.3"})
    EXPECT_EQ(origin_refusal(access, head(fmt::format("Host: {}\r\n", host))), 403) << host;
  const Access with_key({.keys = {"k"}, .host = "0.0.0.0"});
  EXPECT_EQ(origin_refusal(with_key, head("Host: llm.example\r\n")), 0);
}

TEST(Access, PagesOfOthersAreRefused) {
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, std::vector<std::string>{"k"}}) {
    const Access access({.keys = keys, .host = "127.0.0.1"});
    const auto refusal = [&](const std::string& headers, const std::string& line = "POST / HTTP/1.1") {
      return origin_refusal(access, head("Host: localhost:8080\r\n" + headers, line));
    };
    EXPECT_EQ(refusal(""), 0);
    EXPECT_EQ(refusal("Origin: http://localhost:8080\r\n"), 0);
    EXPECT_EQ(refusal("Origin: https://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n"), 0);
    for (const char* origin : {"http://localhost", "http://localhost:3000", "http://evil.example", "null", "",
                               "file://", "http://localhost:8080.evil.example", "localhost:8080"})
      EXPECT_EQ(refusal(fmt::format("Origin: {}\r\n", origin)), 403) << origin;
    const std::string get = "GET /cache HTTP/1.1";
    EXPECT_EQ(refusal("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", get), 403);
    EXPECT_EQ(refusal("Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n", get), 403);
    EXPECT_EQ(refusal("Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", get), 0);
    EXPECT_EQ(refusal("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", get), 0);
    EXPECT_EQ(refusal("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), 403);
  }
}

TEST(Access, KeysOpen) {
  const Access open({.keys = {}, .host = ""});
  EXPECT_EQ(key_refusal(open, ""), 0);
  const Access access({.keys = {"first", "second"}, .host = ""});
  EXPECT_EQ(key_refusal(access, "Authorization: Bearer first\r\n"), 0);
  EXPECT_EQ(key_refusal(access, "authorization: bearer second\r\n"), 0);
  EXPECT_EQ(key_refusal(access, "x-api-key: second\r\n"), 0);
  for (const char* headers : {"", "Authorization: Bearer firs\r\n", "Authorization: Bearer first2\r\n",
                              "Authorization: first\r\n", "Authorization: Basic first\r\n",
                              "Authorization: Bearer\r\n", "x-api-key: \r\n", "x-api-key: SECOND\r\n"})
    EXPECT_EQ(key_refusal(access, headers), 401) << headers;
  EXPECT_NE(access.check_key(head("Host: a\r\nx-api-key: first\r\n")),
            access.check_key(head("Host: a\r\nx-api-key: second\r\n")));
}

TEST(Access, ComparesWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  for (const auto& [a, b] :
       {std::pair{"abc", "abd"}, {"abc", "ab"}, {"ab", "abc"}, {"", "a"}, {"xbc", "abc"}})
    EXPECT_FALSE(equal_in_constant_time(a, b));
  EXPECT_FALSE(equal_in_constant_time(std::string_view("a\0", 2), "a"));
}

}  // namespace
}  // namespace redlite::server
