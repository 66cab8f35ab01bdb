#include "session/fair_queue.h"

#include <algorithm>

namespace redlite::session {

void FairQueue::push(Item item) {
  const std::string& client = item->request.client;
  std::deque<Item>& waiting = waiting_[client];
  if (waiting.empty()) turns_.push_back(client);
  waiting.push_back(std::move(item));
  ++size_;
}

FairQueue::Item FairQueue::pop() {
  if (turns_.empty()) return nullptr;
  std::string client = std::move(turns_.front());
  turns_.pop_front();
  const auto waiting = waiting_.find(client);
  Item item = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) {
    waiting_.erase(waiting);
  } else {
    turns_.push_back(std::move(client));
  }
  --size_;
  return item;
}

std::deque<FairQueue::Item> FairQueue::take_cancelled() {
  std::deque<Item> cancelled;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::deque<Item>& items = it->second;
    const auto kept = std::stable_partition(items.begin(), items.end(),
                                            [](const Item& item) { return !item->cancelled(); });
    std::move(kept, items.end(), std::back_inserter(cancelled));
    items.erase(kept, items.end());
    if (items.empty()) {
      std::erase(turns_, it->first);
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
  size_ -= cancelled.size();
  return cancelled;
}

}  // namespace redlite::session
