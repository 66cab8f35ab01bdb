#pragma once

#include <cstdint>
#include <string_view>

namespace redlite::experts {

struct ExpertFiles;

/// How expert bytes are read from the file.
enum class IoMode : uint8_t {
  Auto,
  Direct,    ///< past the page cache (O_DIRECT): no copy, no second copy in memory
  Buffered,  ///< through the page cache
};

std::string_view io_mode_name(IoMode mode);

/// What Auto means for these files, Direct or Buffered: Buffered when at least half of a sample of the
/// experts' pages is in the page cache already, or when `free_bytes` (the memory left beside the expert
/// cache) can hold all of them, so that after the first reading nothing comes from the disk; otherwise
/// Direct, because the page cache would spend memory and time on pages it drops before they are wanted again.
IoMode choose_io_mode(const ExpertFiles& files, uint64_t free_bytes);

/// The part of a sample of the experts' pages that is in the page cache, 0 to 1.
double page_cache_share(const ExpertFiles& files);

}  // namespace redlite::experts
