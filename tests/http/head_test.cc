#include "http/head.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redlite::http {
namespace {

using testing::HasSubstr;

Head parse(const std::string& line, const std::string& headers = "") {
  return parse_head(line + "\r\nHost: a\r\n" + headers + "\r\n");
}

/// The status with which a head is refused; 0: it is not.
int refusal(const std::string& bytes) {
  try {
    parse_head(bytes);
    return 0;
  } catch (const Refused& e) {
    EXPECT_STRNE(e.what(), "");
    return e.status();
  }
}

int refusal_of(const std::string& headers) {
  return refusal("POST / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n");
}

TEST(Head, IsRead) {
  const Head head =
      parse("POST /v1/x?beta=true&a HTTP/1.1", "Content-Length: 12\r\nX-Y:  a b \t\r\nx-z:\r\n");
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/x");
  EXPECT_EQ(head.query, "beta=true&a");
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_TRUE(head.has_body());
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(*head.find("x-y"), "a b");
  EXPECT_EQ(*head.find("x-z"), "");
  EXPECT_EQ(head.find("nothing"), nullptr);
}

TEST(Head, KeepsConnectionsAsTheVersionHasIt) {
  EXPECT_TRUE(parse("GET / HTTP/1.1").keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1", "Connection: foo, Close\r\n").keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0").keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0", "connection: Keep-Alive\r\n").keep_alive);
  EXPECT_EQ(parse_head("GET / HTTP/1.0\r\n\r\n").minor_version, 0);
}

TEST(Head, AmbiguousLengthsAreRefused) {
  EXPECT_EQ(refusal_of("Content-Length: 5\r\n"), 0);
  EXPECT_EQ(refusal_of("Transfer-Encoding: Chunked\r\n"), 0);
  for (const char* headers : {
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\ncontent-length: 6\r\n",
           "Content-Length: 5, 5\r\n",
           "Content-Length: +5\r\n",
           "Content-Length: -1\r\n",
           "Content-Length: 0x10\r\n",
           "Content-Length: \r\n",
           "Content-Length: 99999999999999999999\r\n",
           "Content-Length : 5\r\n",
           " Content-Length: 5\r\n",
           "X: a\r\n b\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Content-Length: 5\nTransfer-Encoding: chunked\r\n",
           "X: a\rContent-Length: 5\r\n",
       }) {
    EXPECT_EQ(refusal_of(headers), 400) << headers;
  }
  for (const char* encoding : {"gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1"})
    EXPECT_EQ(refusal_of(fmt::format("Transfer-Encoding: {}\r\n", encoding)), 501) << encoding;
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
}

TEST(Head, CharactersThatDoNotBelongAreRefused) {
  using namespace std::string_literals;
  EXPECT_EQ(refusal_of("X: a\0b\r\n"s), 400);
  EXPECT_EQ(refusal_of("X\0: a\r\n"s), 400);
  EXPECT_EQ(refusal_of("X: a\x7f\r\n"), 400);
  EXPECT_EQ(refusal_of("X Y: a\r\n"), 400);
  EXPECT_EQ(refusal_of(": a\r\n"), 400);
  EXPECT_EQ(refusal_of("no colon\r\n"), 400);
  EXPECT_EQ(refusal_of("X: \xc3\xa9\r\n"), 0);
  EXPECT_EQ(refusal("GET /a\0 HTTP/1.1\r\nHost: a\r\n\r\n"s), 400);
  EXPECT_EQ(refusal("GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("G(T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refusal("\x16\x03\x01\x02 TLS hello\r\n\r\n"), 400);
  EXPECT_EQ(refusal(""), 400);
}

TEST(Head, LimitsHold) {
  std::string many;
  for (size_t i = 0; i < kMaxHeaders - 1; ++i) many += fmt::format("X-{}: a\r\n", i);
  EXPECT_EQ(refusal_of(many), 0);
  EXPECT_EQ(refusal_of(many + "X: a\r\n"), 431);
  const std::string path(kMaxTargetBytes, 'a');
  EXPECT_EQ(refusal("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400);  // no slash
  EXPECT_EQ(refusal("GET /" + path + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
}

TEST(Head, NeedsOneHost) {
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
}

TEST(Head, CompressedBodiesAreRefused) {
  EXPECT_EQ(refusal_of("Content-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(refusal_of("Content-Encoding: identity\r\n"), 0);
}

TEST(Head, ExpectsContinueOnly) {
  EXPECT_TRUE(parse("POST / HTTP/1.1", "Expect: 100-continue\r\n").expects_continue);
  EXPECT_EQ(refusal_of("Expect: tea\r\n"), 417);
}

}  // namespace
}  // namespace redlite::http
