#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/json.h"

namespace redlite::server {

/// The conversations that ended in responses, for `previous_response_id`: in memory only, within a bound;
/// those that were not asked for longest go first. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Keeps the messages up to and including a response.
  void put(const std::string& id, const Json& messages);
  std::optional<Json> get(const std::string& id);

  uint64_t bytes() const;

 private:
  struct Entry {
    std::string id;
    std::string messages;  ///< as text, a fraction of what JSON takes in memory
    uint64_t bytes() const { return id.size() + messages.size() + 256; }
  };

  void drop_oldest();

  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< asked for last, first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  uint64_t bytes_ = 0;
};

}  // namespace redlite::server
