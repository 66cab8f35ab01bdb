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

/// A second descriptor of an open file; -1 and errno when it cannot be had.
int reopen(const File& file, int flags) {
  // Through /proc it is the very file that is open, whatever its path names by now.
  int fd = ::open(fmt::format("/proc/self/fd/{}", file.descriptor()).c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd >= 0 || errno != ENOENT) return fd;
  fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) return fd;
  struct stat ours {};
  struct stat named {};
  if (::fstat(file.descriptor(), &ours) == 0 && ::fstat(fd, &named) == 0 && ours.st_dev == named.st_dev &&
      ours.st_ino == named.st_ino) {
    return fd;
  }
  ::close(fd);
  errno = ESTALE;
  return -1;
}

int open_directly(const File& file) {
#ifdef O_DIRECT
  const int fd = reopen(file, O_DIRECT);
  if (fd < 0) return fd;
  // Some file systems accept the flag and refuse the read.
  AlignedBuffer<std::byte> page(kIoAlignment, kIoAlignment);
  if (::pread(fd, page.data(), kIoAlignment, 0) > 0) return fd;
  const int reason = errno;
  ::close(fd);
  errno = reason;
#else
  static_cast<void>(file);
  errno = ENOTSUP;
#endif
  return -1;
}

/// The descriptor is one of our own because the advice holds for all that share it: experts lie scattered, so
/// the system must not read on behind them, but it should behind the mapped dense weights.
int open_buffered(const File& file) {
  const int fd = reopen(file, 0);
#ifdef POSIX_FADV_RANDOM
  if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#endif
  return fd;
}

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
    shard.fd = mode == IoMode::Direct ? open_directly(*shard.file) : open_buffered(*shard.file);
    if (shard.fd < 0) {
      const int reason = errno;
      for (const Shard& opened : shards_) ::close(opened.fd);
      fail("{}: the file cannot be opened for {} reads ({}){}", shard.file->path(), io_mode_name(mode),
           std::strerror(reason), mode == IoMode::Direct ? "; use --io buffered" : "");
    }
    shards_.push_back(shard);
  }
}

Shards::~Shards() {
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
