#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/io_mode.h"
#include "experts/layout.h"

namespace redlite::experts {

/// The model's files as the store reads them: descriptors for direct or buffered reads, and what tells
/// whether a file is still the one that was opened.
class Shards {
 public:
  /// `mode` Direct or Buffered. Throws Error when Direct was asked for and a file system cannot do it.
  Shards(const ExpertFiles& files, IoMode mode);
  ~Shards();
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  /// True if every file can be read directly.
  static bool can_read_directly(const ExpertFiles& files);

  IoMode mode() const { return mode_; }
  int descriptor(uint32_t shard) const { return shards_[shard].fd; }
  const std::string& path(uint32_t shard) const { return shards_[shard].file->path(); }
  /// True when the file's size or modification time is no longer what it was at the start.
  bool changed(uint32_t shard) const;

 private:
  struct Shard {
    const File* file = nullptr;
    int fd = -1;
    int64_t modified_seconds = 0;
    int64_t modified_nanoseconds = 0;
  };
  IoMode mode_;
  std::vector<Shard> shards_;
};

}  // namespace redlite::experts
