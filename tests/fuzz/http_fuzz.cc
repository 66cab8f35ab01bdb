// Heads of HTTP requests: any bytes are refused with a status and one line, or make a head of which nothing
// could be taken for two things.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "http/head.h"
#include "server/access.h"

namespace redlite::http {
namespace {

void check(const Head& head) {
  RL_CHECK(head.path.starts_with('/'));
  RL_CHECK(!(head.chunked && head.content_length));
  RL_CHECK(head.headers.size() <= kMaxHeaders);
  int lengths = 0;
  for (const Header& header : head.headers) {
    RL_CHECK(!header.name.empty());
    RL_CHECK(std::none_of(header.value.begin(), header.value.end(),
                          [](char c) { return c == '\r' || c == '\n' || c == '\0'; }));
    lengths += header.name == "content-length" || header.name == "transfer-encoding" ? 1 : 0;
  }
  RL_CHECK(lengths <= 1);
  RL_CHECK((lengths == 1) == (head.chunked || head.content_length));
}

void run(std::string_view bytes) {
  static const server::Access kOpen({.keys = {}, .host = "127.0.0.1"});
  static const server::Access kKeyed({.keys = {"a", "bc"}, .host = "127.0.0.1"});
  try {
    const Head head = parse_head(bytes);
    check(head);
    kOpen.check_origin(head);
    kKeyed.check_key(head);
  } catch (const Refused& e) {
    const std::string_view message = e.what();
    RL_CHECK(e.status() >= 400 && e.status() < 600, "{}", e.status());
    RL_CHECK(!message.empty() && message.find('\n') == std::string_view::npos, "{}", message);
  }
}

}  // namespace
}  // namespace redlite::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::http::run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
