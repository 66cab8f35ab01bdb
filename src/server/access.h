#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http/head.h"

namespace redlite::server {

/// Who may use the server.
struct AccessOptions {
  std::vector<std::string> keys;   ///< any of them opens; none: no key is asked for
  std::string host = "127.0.0.1";  ///< where the server listens
};

/// Whether only this machine can connect to an address that was given as --host.
bool is_loopback(std::string_view host);

/// Looks at heads, before anything else is done for a request.
///
/// - A page that a browser shows must not be able to use the server unless the server gave it: a request with
///   an Origin that is not where it is sent to, or that the browser calls cross-site, is refused. There is no
///   CORS.
/// - A name that a stranger made point here (DNS rebinding) must not work either: without keys, the Host must
///   be an address, localhost or the --host.
/// - Keys come as "Authorization: Bearer KEY" or "x-api-key: KEY", and are compared in a time that does not
///   depend on how much of one is right.
class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  /// Throws http::Refused (403) unless the request comes from where it says.
  void check_origin(const http::Head& head) const;
  /// Throws http::Refused (401). Returns who asks: something that tells clients with different keys apart.
  std::string check_key(const http::Head& head) const;

 private:
  const AccessOptions options_;
};

/// Whether two texts are equal, in a time that depends on their lengths only.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace redlite::server
