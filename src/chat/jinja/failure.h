#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace redlite::chat::jinja {

/// Why a template cannot be read or run, without the place; Template adds that and throws Error.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace redlite::chat::jinja
