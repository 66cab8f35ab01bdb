#include "server/page.h"

namespace redlite::server {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

void send_asset(http::Exchange& exchange, const Asset& asset) {
  http::Exchange::Headers headers = {{"ETag", std::string(asset.etag)},
                                     {"Cache-Control", "no-cache"},
                                     {"Vary", "Accept-Encoding"},
                                     {"Content-Security-Policy", kPolicy},
                                     {"X-Content-Type-Options", "nosniff"},
                                     {"Referrer-Policy", "no-referrer"},
                                     {"Cross-Origin-Opener-Policy", "same-origin"},
                                     {"Cross-Origin-Resource-Policy", "same-origin"}};
  const std::string* known = exchange.head().find("if-none-match");
  if (known != nullptr && known->find(asset.etag) != std::string::npos)
    return exchange.answer(304, "", "", headers);
  const std::string* accepted = exchange.head().find("accept-encoding");
  if (accepted == nullptr || accepted->find("gzip") == std::string::npos)
    return exchange.answer(406, "text/plain", "this page is sent compressed (gzip) only\n", headers);
  headers.emplace_back("Content-Encoding", "gzip");
  exchange.answer(200, asset.type, asset.gzip, headers);
}

}  // namespace redlite::server
