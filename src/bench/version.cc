#include "bench/version.h"

#include "redlite_commit.h"

namespace redlite::bench {

std::string_view version() {
  return REDLITE_VERSION;
}

std::string_view commit() {
  return REDLITE_COMMIT;
}

}  // namespace redlite::bench
