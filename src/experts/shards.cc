#include "experts/shards.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/aligned.h"
#include "base/error.h"

namespace redlite::experts {
namespace {

struct timespec modification_time(const struct stat& st) {
#ifdef __APPLE__
  return st.st_mtimespec;
#else
  return st.st_mtim;
#endif
}

#ifdef O_DIRECT
/// A second descriptor of an open file, for direct reads; -1 and errno when the file system has none.
int open_directly(const File& file) {
  // Through /proc it is the very file that is open, whatever its path names by now.
  int fd =
      ::open(fmt::format("/proc/self/fd/{}", file.descriptor()).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    fd = ::open(file.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    struct stat ours {};
    struct stat named {};
    if (fd >= 0 && (::fstat(file.descriptor(), &ours) != 0 || ::fstat(fd, &named) != 0 ||
                    ours.st_dev != named.st_dev || ours.st_ino != named.st_ino)) {
      ::close(fd);
      errno = ESTALE;
      return -1;
    }
  }
  if (fd < 0) return -1;
  // Some file systems accept the flag and refuse the read.
  AlignedBuffer<std::byte> page(kIoAlignment, kIoAlignment);
  if (::pread(fd, page.data(), kIoAlignment, 0) <= 0) {
    const int reason = errno;
    ::close(fd);
    errno = reason;
    return -1;
  }
  return fd;
}
#else
int open_directly(const File&) {
  errno = ENOTSUP;
  return -1;
}
#endif

}  // namespace

Shards::Shards(const ExpertFiles& files, IoMode mode) : mode_(mode) {
  RL_CHECK(mode != IoMode::Auto);
  for (const MappedFile* mapped : files.shards) {
    Shard shard;
    shard.file = &mapped->file();
    struct stat st {};
    if (::fstat(shard.file->descriptor(), &st) != 0 ||
        static_cast<uint64_t>(st.st_size) != shard.file->size()) {
      fail("{}: the file changed while it was being opened", shard.file->path());
    }
    shard.modified_seconds = modification_time(st).tv_sec;
    shard.modified_nanoseconds = modification_time(st).tv_nsec;
    shard.fd = shard.file->descriptor();
    shards_.push_back(shard);
  }
  if (mode != IoMode::Direct) return;
  std::vector<int> opened;
  for (Shard& shard : shards_) {
    const int fd = open_directly(*shard.file);
    if (fd < 0) {
      const int reason = errno;
      for (const int other : opened) ::close(other);
      fail("{}: this file cannot be read directly ({}); use --io buffered", shard.file->path(),
           std::strerror(reason));
    }
    opened.push_back(fd);
    shard.fd = fd;
  }
}

Shards::~Shards() {
  if (mode_ != IoMode::Direct) return;
  for (const Shard& shard : shards_) ::close(shard.fd);
}

bool Shards::can_read_directly(const ExpertFiles& files) {
  for (const MappedFile* mapped : files.shards) {
    const int fd = open_directly(mapped->file());
    if (fd < 0) return false;
    ::close(fd);
  }
  return true;
}

bool Shards::changed(uint32_t shard) const {
  const Shard& s = shards_[shard];
  struct stat st {};
  if (::fstat(s.fd, &st) != 0) return true;
  const struct timespec modified = modification_time(st);
  return static_cast<uint64_t>(st.st_size) != s.file->size() || modified.tv_sec != s.modified_seconds ||
         modified.tv_nsec != s.modified_nanoseconds;
}

}  // namespace redlite::experts
