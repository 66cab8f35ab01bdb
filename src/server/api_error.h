#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace redlite::server {

/// What a request is answered with when it cannot be done; each API has a shape of its own for it.
class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, std::string parameter = "")
      : Error(message), status_(status), parameter_(std::move(parameter)) {}

  static ApiError try_again(int status, const std::string& message, int seconds) {
    ApiError error(status, message);
    error.retry_after_ = seconds;
    return error;
  }

  /// A prompt that the context cannot hold: agents shorten a conversation when they are told so.
  static ApiError too_long(const std::string& message) {
    ApiError error(400, message);
    error.too_long_ = true;
    return error;
  }

  int status() const { return status_; }
  const std::string& parameter() const { return parameter_; }  ///< of the request; empty: none in particular
  std::optional<int> retry_after() const { return retry_after_; }  ///< seconds
  bool is_too_long() const { return too_long_; }

 private:
  int status_;
  std::string parameter_;
  std::optional<int> retry_after_;
  bool too_long_ = false;
};

}  // namespace redlite::server
