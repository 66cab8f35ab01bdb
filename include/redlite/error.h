#pragma once

#include <stdexcept>

#if defined(__GNUC__)
#define REDLITE_API __attribute__((visibility("default")))
#else
#define REDLITE_API
#endif

namespace redlite {

/// The one exception that crosses public boundaries. Its message is one line that says what is wrong, where
/// (file, tensor, offset, request field) and what to do about it; programs print it and exit with status 1.
class REDLITE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace redlite
