#include "server/response_store.h"

#include <utility>

namespace redlite::server {

void ResponseStore::drop_oldest() {
  bytes_ -= entries_.back().bytes();
  places_.erase(entries_.back().id);
  entries_.pop_back();
}

void ResponseStore::put(const std::string& id, const Json& messages) {
  Entry entry{id, to_text(messages)};
  if (entry.bytes() > most_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (places_.contains(id)) return;
  while (bytes_ + entry.bytes() > most_bytes_) drop_oldest();
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  places_[id] = entries_.begin();
}

std::optional<Json> ResponseStore::get(const std::string& id) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(id);
    if (place == places_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, place->second);
    text = place->second->messages;
  }
  return Json::parse(text);
}

uint64_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace redlite::server
