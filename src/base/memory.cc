#include "base/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace redlite {
namespace {

/// The text of a small file of /proc or /sys; empty if there is none.
std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> number_in(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// The number behind `name` (with its colon or blank) at the start of a line.
std::optional<uint64_t> field(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return number_in(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

void lower(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value && (!least || *value < *least)) least = value;
}

/// One controller's directories from `path` up to `root`.
void walk(const std::string& root, std::string path, const char* limit_file, const char* usage_file,
          const char* inactive, const char* active, detail::CgroupMemory& memory) {
  // v1 writes "no limit" as the largest multiple of a page.
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;
  for (;;) {
    const std::string directory = root + path;
    const std::optional<uint64_t> limit = number_in(text_of(directory + "/" + limit_file));
    if (limit && *limit < kNoLimit) {
      lower(memory.limit, limit);
      const uint64_t usage = number_in(text_of(directory + "/" + usage_file)).value_or(0);
      const std::string stat = text_of(directory + "/memory.stat");
      const uint64_t page_cache = field(stat, inactive).value_or(0) + field(stat, active).value_or(0);
      const uint64_t taken = usage - std::min(usage, page_cache);
      lower(memory.available, *limit - std::min(*limit, taken));
    }
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

detail::CgroupMemory own_cgroup() {
  return detail::cgroup_memory(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace

namespace detail {

CgroupMemory cgroup_memory(const std::string& proc_cgroup, const std::string& root) {
  CgroupMemory memory;
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers == ",,") {
      walk(root, path, "memory.max", "memory.current", "inactive_file ", "active_file ", memory);
    } else if (controllers.find(",memory,") != std::string::npos) {
      walk(root + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
           "total_active_file ", memory);
    }
  }
  return memory;
}

}  // namespace detail

uint64_t available_memory() {
  std::optional<uint64_t> least = own_cgroup().available;
  if (const std::optional<uint64_t> kib = field(text_of("/proc/meminfo"), "MemAvailable:")) {
    lower(least, *kib * 1024);
  } else {
#ifdef _SC_PHYS_PAGES
    // No such figure (macOS): half of what is installed.
    lower(least, static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                     static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2);
#endif
  }
  return least.value_or(0);
}

std::optional<uint64_t> memory_limit() {
  return own_cgroup().limit;
}

uint64_t resident_memory() {
  return field(text_of("/proc/self/status"), "VmRSS:").value_or(0) * 1024;
}

uint64_t peak_resident_memory() {
  if (const std::optional<uint64_t> kib = field(text_of("/proc/self/status"), "VmHWM:")) return *kib * 1024;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

void reset_peak_resident_memory() {
  std::ofstream("/proc/self/clear_refs") << 5;  // proc(5): resets VmHWM
}

}  // namespace redlite
