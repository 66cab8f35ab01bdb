#include "machine/describe.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace redlite::machine {
namespace {

/// The text of a file of /proc, whose size the system states as 0; empty if there is none.
std::string text_of(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

namespace detail {

std::string proc_value(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t name_end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (line.compare(0, name_end + 1, name) != 0) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

}  // namespace detail

Machine describe() {
  Machine machine;
  const std::string cpuinfo = text_of("/proc/cpuinfo");
  machine.processor = detail::proc_value(cpuinfo, "model name");
  if (machine.processor.empty()) machine.processor = detail::proc_value(cpuinfo, "Model");  // Arm boards
  if (machine.processor.empty()) machine.processor = "unknown";
  machine.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
#ifdef _SC_PHYS_PAGES
  machine.memory_bytes =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
#endif
  struct utsname name {};
  if (::uname(&name) == 0) machine.system = std::string(name.sysname) + " " + name.release;
  return machine;
}

}  // namespace redlite::machine
