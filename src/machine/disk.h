#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace redlite::machine {

struct DiskSpeed {
  double bytes_per_second = 0;
  bool direct = false;  ///< false: the file system has no direct reads; the figure is the page cache's, too
  std::string_view reader;  ///< "io_uring", "threads"
};

/// Random reads of `block` bytes (a multiple of 4096) at multiples of 4096 of a file, `depth` of them (1 to
/// 128) in flight, past the page cache, for about `seconds`: what a cache of experts can get from this disk.
/// Throws Error when the file cannot be read or is smaller than a block.
DiskSpeed random_read_speed(const std::string& path, size_t block, int depth, double seconds);

}  // namespace redlite::machine
