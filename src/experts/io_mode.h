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

/// What Auto means for these files: Buffered when at least half of a sample of the experts' pages is in the
/// page cache at the start, so that it serves as a second tier; otherwise Direct, because cold reads through
/// the page cache are slower and spend memory on pages that it drops before they are wanted again.
IoMode choose_io_mode(const ExpertFiles& files);

/// The part of a sample of the experts' pages that is in the page cache, 0 to 1; 0 if that cannot be known.
double page_cache_share(const ExpertFiles& files);

}  // namespace redlite::experts
