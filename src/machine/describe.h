#pragma once

#include <cstdint>
#include <string>

namespace redlite::machine {

struct Machine {
  std::string processor;      ///< as the system names it; "unknown" if it does not
  int cores = 0;              ///< online processors, hyper-threads included
  uint64_t memory_bytes = 0;  ///< installed; 0 if unknown
  std::string system;         ///< "Linux 6.1.0"
};

/// What this program runs on.
Machine describe();

namespace detail {
/// The first value of a "name : value" line of /proc/cpuinfo or /proc/meminfo; empty if there is none.
std::string proc_value(const std::string& text, const std::string& name);
}  // namespace detail

}  // namespace redlite::machine
