#pragma once

#include <cstddef>
#include <cstdint>

#include "chat/jinja/failure.h"

namespace redlite::chat::jinja {

/// The work that one rendering may do. A step is a node visited or an element made; reading or writing 16
/// bytes of text counts as one too, so that the budget bounds time and memory alike.
class Budget {
 public:
  explicit Budget(uint64_t steps) : left_(steps) {}

  void spend(uint64_t steps = 1) {
    if (steps > left_) raise("the template does too much work for this conversation");
    left_ -= steps;
  }
  void spend_bytes(size_t bytes) { spend(bytes / 16); }

 private:
  uint64_t left_;
};

}  // namespace redlite::chat::jinja
