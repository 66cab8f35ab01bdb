#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include <redlite/error.h>

namespace redlite {

/// Throws an Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);
}  // namespace detail

}  // namespace redlite

/// Aborts, with the expression and a formatted explanation, on what only a bug in this program can cause.
/// Anything that a user, a file or a request can cause throws Error instead.
#define RL_CHECK(expression, ...)                                                                      \
  do {                                                                                                 \
    if (!(expression)) [[unlikely]]                                                                    \
      ::redlite::detail::check_failed(__FILE__, __LINE__, #expression, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
