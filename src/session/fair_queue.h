#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "session/job.h"

namespace redlite::session {

/// Requests that wait: clients take turns, each with its oldest one. A plain data structure.
class FairQueue {
 public:
  using Item = std::shared_ptr<Answer::Job>;

  void push(Item item);
  /// nullptr when empty.
  Item pop();
  /// Takes out those that were cancelled.
  std::deque<Item> take_cancelled();

  size_t size() const { return size_; }
  bool has(const std::string& client) const { return waiting_.contains(client); }

 private:
  std::map<std::string, std::deque<Item>> waiting_;  ///< by client, none empty
  std::deque<std::string> turns_;                    ///< the clients, whose turn is next in front
  size_t size_ = 0;
};

}  // namespace redlite::session
