#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace redlite {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Bytes this process could still take without swapping: what the system calls available or what its memory
/// cgroup leaves, whichever is less. Page cache counts as available, for it gives way. 0 if unknown.
uint64_t available_memory();

/// The least memory limit of the cgroups (v2 or v1) this process is in; nullopt: none.
std::optional<uint64_t> memory_limit();

/// Resident memory of this process, now and at its peak; mapped files count as far as they were touched.
uint64_t resident_memory();
uint64_t peak_resident_memory();
/// Starts the peak anew from what is resident now; does nothing where the system cannot (not Linux).
void reset_peak_resident_memory();

namespace detail {

/// A memory cgroup and its ancestors, as far as they are visible.
struct CgroupMemory {
  std::optional<uint64_t> limit;      ///< the least on the way up
  std::optional<uint64_t> available;  ///< the least of limit - usage + page cache
};

/// `proc_cgroup`: the text of /proc/self/cgroup; `root`: where the cgroup file systems are mounted.
CgroupMemory cgroup_memory(const std::string& proc_cgroup, const std::string& root);

}  // namespace detail
}  // namespace redlite
