#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "session/statistics.h"

namespace redlite::server {

/// What /metrics says: the engine's statistics and what the server counts itself, in Prometheus's text
/// format. Thread-safe.
class Metrics {
 public:
  void count_request(std::string_view api);
  void count_error(int status);
  std::string text(const session::Statistics& statistics) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> requests_;  ///< by API
  std::map<int, uint64_t> errors_;                         ///< by status
};

}  // namespace redlite::server
