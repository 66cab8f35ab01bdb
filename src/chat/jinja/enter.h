#pragma once

#include "chat/jinja/interpreter.h"

namespace redlite::chat::jinja {

/// Counts a level of the interpreter's recursion, and pays for the visit.
class Interpreter::Enter {
 public:
  static constexpr int kMaxDepth = 800;

  explicit Enter(Interpreter& interpreter) : interpreter_(interpreter) {
    interpreter_.budget_.spend();
    if (interpreter_.depth_ >= kMaxDepth) raise("the template calls itself too deeply");
    ++interpreter_.depth_;
  }
  ~Enter() { --interpreter_.depth_; }
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;

 private:
  Interpreter& interpreter_;
};

}  // namespace redlite::chat::jinja
