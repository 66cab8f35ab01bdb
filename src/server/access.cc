#include "server/access.h"

#include <arpa/inet.h>

#include <algorithm>

namespace redlite::server {
namespace {

/// "host" of "host:port"; IPv6 addresses without their brackets.
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? "" : std::string(authority.substr(1, end - 1));
  }
  return std::string(authority.substr(0, authority.find(':')));
}

bool is_address(const std::string& host) {
  in6_addr buffer{};
  return ::inet_pton(AF_INET, host.c_str(), &buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &buffer) == 1;
}

/// What stands behind "http://" or "https://" of an origin.
std::string_view authority_of(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return "";
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return http::equal_ignoring_case(host, "localhost");
}

void Access::check_origin(const http::Head& head) const {
  const std::string* host = head.find("host");
  const std::string name = host != nullptr ? host_of(*host) : "";
  if (options_.keys.empty()) {
    const bool ours = is_address(name) || http::equal_ignoring_case(name, "localhost") ||
                      http::equal_ignoring_case(name, options_.host);
    if (!ours)
      throw http::Refused(403,
                          "the Host header names neither an address nor this server: without an API key "
                          "other names are refused (DNS rebinding)");
  }
  const std::string* origin = head.find("origin");
  if (origin != nullptr) {
    const std::string_view authority = authority_of(*origin);
    if (host == nullptr || authority.empty() || !http::equal_ignoring_case(authority, *host))
      throw http::Refused(403, "requests from other sites' pages are refused (Origin)");
  }
  // Without an Origin come GETs; a link to the page itself may stand anywhere.
  const std::string* site = head.find("sec-fetch-site");
  const std::string* mode = head.find("sec-fetch-mode");
  const bool foreign = site != nullptr && *site != "same-origin" && *site != "none";
  const bool link = mode != nullptr && *mode == "navigate" && head.method == "GET";
  if (foreign && !link)
    throw http::Refused(403, "requests from other sites' pages are refused (Sec-Fetch-Site)");
}

std::string Access::check_key(const http::Head& head) const {
  if (options_.keys.empty()) return "";
  std::string_view key;
  if (const std::string* header = head.find("x-api-key")) key = *header;
  if (const std::string* header = head.find("authorization")) {
    constexpr std::string_view kScheme = "bearer ";
    const std::string_view value = *header;
    if (value.size() > kScheme.size() && http::equal_ignoring_case(value.substr(0, kScheme.size()), kScheme))
      key = value.substr(kScheme.size());
  }
  size_t which = options_.keys.size();
  for (size_t i = 0; i < options_.keys.size(); ++i) {
    if (equal_in_constant_time(key, options_.keys[i])) which = i;
  }
  if (which == options_.keys.size()) {
    throw http::Refused(401, key.empty()
                                 ? "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
                                 : "this API key is not one of the server's");
  }
  return "key " + std::to_string(which);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  // Every byte of the longer text is looked at, whatever the others were.
  volatile unsigned char differences = a.size() == b.size() ? 0 : 1;
  const size_t n = std::max(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    const auto x = static_cast<unsigned char>(i < a.size() ? a[i] : 0);
    const auto y = static_cast<unsigned char>(i < b.size() ? b[i] : 0);
    differences = differences | static_cast<unsigned char>(x ^ y);
  }
  return differences == 0;
}

}  // namespace redlite::server
