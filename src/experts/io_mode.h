#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "experts/reader.h"

namespace redlite::experts {

struct ExpertFiles;

/// How expert bytes are read from the file.
enum class IoMode : uint8_t {
  Auto,
  Direct,    ///< past the page cache (O_DIRECT): no copy, no second copy in memory
  Buffered,  ///< through the page cache
};

std::string_view io_mode_name(IoMode mode);

/// A decision of IoMode::Auto and what was measured for it, in bytes a second.
struct IoChoice {
  IoMode mode = IoMode::Direct;
  double direct = 0;  ///< 0: the file system has no direct reads
  double buffered = 0;
};

/// Reads a few random experts in both ways and takes the better one: as many together as a token may miss in
/// a layer, for more would hide how long a read takes to begin, which a token waits for in every layer. It
/// costs some tens of milliseconds, and leaves what it read in the page cache: a small model nearly whole.
IoChoice choose_io_mode(const ExpertFiles& files,
                        const std::function<std::unique_ptr<Reader>()>& open_reader = make_reader);

/// Buffered when it is at least three times as fast, or all there is. Short of that direct reads are better
/// even from a warm page cache: the disk fetches them while the processor computes, but a buffered read is a
/// copy that the processor makes itself.
IoMode better_io_mode(double direct, double buffered);

}  // namespace redlite::experts
