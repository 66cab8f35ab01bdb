#pragma once

#include <span>
#include <string_view>

#include "http/server.h"

namespace redlite::server {

/// A file of the page, as the build embeds it (embed.cmake): compressed, with its hash as its tag.
struct Asset {
  std::string_view path;  ///< where it is served: "/", "/app.js"
  std::string_view type;
  std::string_view etag;  ///< with its quotation marks
  std::string_view gzip;
};

/// All of them; none where the build found no page.
std::span<const Asset> assets();

/// Answers with an asset, under a policy that lets the page load and reach nothing but this server.
void send_asset(http::Exchange& exchange, const Asset& asset);

}  // namespace redlite::server
