#pragma once

#include <string_view>

namespace redlite::bench {

/// "0.1.0"
std::string_view version();
/// The commit this was built from, with "-dirty" if files were changed since; "unknown" outside a repository.
std::string_view commit();

}  // namespace redlite::bench
