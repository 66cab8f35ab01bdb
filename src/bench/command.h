#pragma once

#include <string>

namespace redlite::bench {

/// Runs a command line in a shell and returns what it printed to stdout. Throws Error with its status and the
/// last line it printed to stderr when it fails.
std::string run_command(const std::string& command);

}  // namespace redlite::bench
