#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace redlite::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  fmt::print(stderr, "redlite: internal check failed at {}:{}: {} {}\n", file, line, expression, detail);
  std::fflush(stderr);
  std::abort();
}

}  // namespace redlite::detail
