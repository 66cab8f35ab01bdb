#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "base/error.h"
#include "raw_client.h"

namespace redlite::http {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server that says what it was asked; /slow waits until the client is gone or the server stops, /flood
/// writes until it cannot, /ignore does not read the body.
class Echo {
 public:
  explicit Echo(Limits limits = {})
      : server(
            "127.0.0.1", 0, limits, [this](Exchange& x) { handle(x); },
            [](Exchange& x, const Refused& e) { x.answer(e.status(), "text/plain", e.what()); }) {}

  void handle(Exchange& x) {
    ++requests;
    if (x.head().path == "/slow") {
      while (!x.client_gone() && !x.stopping()) std::this_thread::sleep_for(5ms);
      ++(x.client_gone() ? gone : stopped);
      if (x.client_gone()) throw ClientGone("gone");
      x.answer(503, "text/plain", "stopped");
    } else if (x.head().path == "/flood") {
      x.begin(200, "text/plain");
      try {
        while (true) x.write(std::string(10000, 'x'));
      } catch (const ClientGone&) {
        ++gone;
        throw;
      }
    } else if (x.head().path == "/pieces") {
      x.begin(200, "text/plain");
      x.write("one");
      x.write("");
      x.write("two");
      x.end();
    } else if (x.head().path == "/half") {
      x.begin(200, "text/plain");
      x.write("one");
    } else if (x.head().path == "/ignore") {
      x.answer(401, "text/plain", "no");
    } else {
      const std::string body = x.read_body();
      x.answer(200, "text/plain", x.head().method + " " + x.head().path + " [" + body + "]");
    }
  }

  std::atomic<int> requests = 0, gone = 0, stopped = 0;
  Server server;
};

/// Waits until a thread of the server has counted.
void wait_for(const std::atomic<int>& counter, int value) {
  for (int i = 0; i < 1000 && counter < value; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_GE(counter, value);
}

TEST(HttpServer, AnswersSeveralRequestsOfAConnection) {
  Echo echo;
  RawClient client(echo.server.port());
  EXPECT_THAT(client.ask(kGet), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nGET / []")));
  EXPECT_THAT(client.ask("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
              EndsWith("POST /x [abc]"));
  EXPECT_THAT(client.ask("POST /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
              EndsWith("POST /y [abc0123456789]"));
  client.send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.receive(), AllOf(HasSubstr("Content-Length: 9\r\n"), EndsWith("\r\n\r\n")));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send(
      "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
      "GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string all = client.receive();
  EXPECT_THAT(all, HasSubstr("GET /1 []"));
  EXPECT_LT(all.find("GET /1"), all.find("POST /2 [x]"));
  EXPECT_LT(all.find("POST /2"), all.find("GET /3"));
}

TEST(HttpServer, ReadsRequestsThatComeByteByByte) {
  Echo echo;
  RawClient client(echo.server.port());
  for (const char c :
       "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"s)
    client.send(std::string(1, c));
  EXPECT_THAT(client.receive("]"), EndsWith("POST /x [ab]"));
}

TEST(HttpServer, StreamsInChunks) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send("GET /pieces HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.receive("0\r\n\r\n"), EndsWith("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
  RawClient old(echo.server.port());
  old.send("GET /pieces HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.receive(), EndsWith("\r\n\r\nonetwo"));
}

TEST(HttpServer, AnUnfinishedAnswerHasNoEnd) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.receive(), EndsWith("3\r\none\r\n"));
}

TEST(HttpServer, ContinuesWhenAsked) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_THAT(client.receive("]"), EndsWith("[abc]"));
}

// A body that nobody read must not be taken for the next request.
TEST(HttpServer, ABodyThatWasNotReadEndsTheConnection) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send(
      "POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string all = client.receive();
  EXPECT_THAT(all, AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("Connection: close"), EndsWith("no")));
  EXPECT_EQ(echo.requests, 1);
}

TEST(HttpServer, WhatIsNoRequestIsRefusedAndTheConnectionClosed) {
  Echo echo;
  const std::pair<std::string, const char*> kCases[] = {
      {"nonsense\r\n\r\n", "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
           std::string(kGet),
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 28\r\n\r\n" + std::string(kGet),
       "HTTP/1.1 400"},
      {"GET / HTTP/1.1\r\nX: " + std::string(kMaxHeadBytes, 'a') + "\r\n\r\n", "HTTP/1.1 431"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "HTTP/1.1 413"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(100, '0'),
       "HTTP/1.1 400"},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413"},
  };
  for (const auto& [request, status] : kCases) {
    RawClient client(echo.server.port());
    client.send(request);
    client.shut_down_sending();
    const std::string all = client.receive();
    EXPECT_THAT(all, AllOf(StartsWith(status), HasSubstr("Connection: close"))) << request.substr(0, 100);
    EXPECT_EQ(all.find("HTTP/1.1 ", 1), std::string::npos) << "answered twice: " << all;
  }
}

// The answer arrives although the client is still sending.
TEST(HttpServer, ATooLargeBodyIsAnsweredBeforeItIsSent) {
  Limits limits;
  limits.body_bytes = 1000;
  Echo echo(limits);
  RawClient client(echo.server.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 100; ++i) client.send(std::string(10000, 'x'));
  EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(RawClient(echo.server.port())
                  .ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')),
              StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, BodiesTogetherAreLimited) {
  Limits limits;
  limits.body_bytes = 1000;
  limits.all_bodies_bytes = 1500;
  Echo echo(limits);
  RawClient first(echo.server.port());
  first.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx");
  wait_for(echo.requests, 1);
  const std::string small =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 600\r\n\r\n" + std::string(600, 'x');
  EXPECT_THAT(RawClient(echo.server.port()).ask(small), StartsWith("HTTP/1.1 503"));
  first.send(std::string(999, 'x'));
  EXPECT_THAT(first.receive("]"), StartsWith("HTTP/1.1 200"));
  // A moment after the answer.
  std::string answer;
  for (int i = 0; i < 200 && !answer.starts_with("HTTP/1.1 200"); ++i) {
    std::this_thread::sleep_for(5ms);
    answer = RawClient(echo.server.port()).ask(small);
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, SlowSendersAreGivenUp) {
  Limits limits;
  limits.idle = 100ms;
  limits.head = 100ms;
  limits.body = 100ms;
  Echo echo(limits);
  RawClient silent(echo.server.port()), head(echo.server.port()), body(echo.server.port());
  head.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_THAT(silent.receive(), IsEmpty());
  EXPECT_THAT(head.receive(), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(body.receive(), StartsWith("HTTP/1.1 408"));
  // A byte now and then does not help.
  RawClient trickle(echo.server.port());
  for (int i = 0; i < 40 && trickle.send("x"); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_THAT(trickle.receive(), StartsWith("HTTP/1.1 408"));
}

TEST(HttpServer, ClientsThatReadNothingAreGivenUp) {
  Limits limits;
  limits.write = 100ms;
  Echo echo(limits);
  RawClient client(echo.server.port(), 4096);
  client.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  wait_for(echo.gone, 1);
}

TEST(HttpServer, NoticesThatAClientLeft) {
  Echo echo;
  RawClient client(echo.server.port());
  client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  wait_for(echo.requests, 1);
  client.close();
  wait_for(echo.gone, 1);
}

TEST(HttpServer, ConnectionsAreLimited) {
  Limits limits;
  limits.connections = 2;
  Echo echo(limits);
  RawClient a(echo.server.port()), b(echo.server.port());
  for (RawClient* client : {&a, &b}) client->send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  wait_for(echo.requests, 2);
  EXPECT_THAT(RawClient(echo.server.port()).receive(), StartsWith("HTTP/1.1 503"));
  a.close();
  for (int i = 0; i < 200 && echo.server.connections() > 1; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_THAT(RawClient(echo.server.port()).ask(kGet), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, TheLongestIdleConnectionGivesWay) {
  Limits limits;
  limits.connections = 10;  // some may not be idle yet although they have their answer
  Echo echo(limits);
  RawClient busy(echo.server.port()), first(echo.server.port());
  busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(first.ask(kGet), StartsWith("HTTP/1.1 200"));
  RawClient second(echo.server.port());
  second.send("GET / HTTP");  // and never the rest
  EXPECT_THAT(first.ask(kGet), StartsWith("HTTP/1.1 200"));
  wait_for(echo.requests, 3);
  // Idle clients come in any number; whoever asks something is answered.
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 30; ++i) {
    flood.push_back(std::make_unique<RawClient>(echo.server.port()));
    EXPECT_THAT(RawClient(echo.server.port()).ask(kGet), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(second.receive(), "");
  EXPECT_EQ(echo.gone, 0);
  busy.close();
  wait_for(echo.gone, 1);
}

TEST(HttpServer, StopsIdleConnectionsAtOnceAndOthersAfterTheirGrace) {
  Echo echo;
  RawClient idle(echo.server.port()), busy(echo.server.port());
  idle.ask(kGet);
  busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  wait_for(echo.requests, 2);
  const auto start = Clock::now();
  echo.server.stop(50ms);
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_EQ(echo.stopped, 1);
  EXPECT_THAT(idle.receive(), IsEmpty());
  EXPECT_THAT(busy.receive(), EndsWith("stopped"));
  EXPECT_ANY_THROW(RawClient(echo.server.port()));
}

TEST(HttpServer, SaysWhyItCannotListen) {
  Echo echo;
  try {
    Server second("127.0.0.1", echo.server.port(), {}, nullptr, nullptr);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--port"));
  }
  EXPECT_THROW(Server("no.such.host.invalid", 0, {}, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace redlite::http
