#include "machine/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/aligned.h"
#include "base/error.h"
#include "base/file.h"
#include "experts/layout.h"
#include "experts/reader.h"

namespace redlite::machine {
namespace {

using experts::kIoAlignment;

/// A file open for direct reads, or for plain ones where there are none.
class DirectFile {
 public:
  explicit DirectFile(const std::string& path) : file_(path), fd_(file_.descriptor()) {
#ifdef O_DIRECT
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) return;
    // Some file systems accept the flag and refuse the read.
    AlignedBuffer<std::byte> page(kIoAlignment, kIoAlignment);
    if (::pread(fd, page.data(), kIoAlignment, 0) < 0) {
      ::close(fd);
      return;
    }
    fd_ = fd;
#endif
  }
  ~DirectFile() {
    if (direct()) ::close(fd_);
  }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  bool direct() const {
    return fd_ != file_.descriptor();
  }
  int descriptor() const {
    return fd_;
  }
  uint64_t size() const {
    return file_.size();
  }
  const std::string& path() const {
    return file_.path();
  }

 private:
  File file_;
  int fd_;
};

}  // namespace

DiskSpeed random_read_speed(const std::string& path, size_t block, int depth, double seconds) {
  RL_CHECK(block > 0 && block % kIoAlignment == 0 && depth > 0 && depth <= experts::kReadDepth,
           "blocks of {} bytes, {} in flight", block, depth);
  const DirectFile file(path);
  if (file.size() < block) fail("{}: smaller than the {} bytes of a read to be measured", path, block);
  const uint64_t n_places = (file.size() - block) / kIoAlignment + 1;

  AlignedBuffer<std::byte> memory(block * static_cast<size_t>(depth), kIoAlignment);
  const std::unique_ptr<experts::Reader> reader = experts::make_reader();
  // Other places each time: what a virtual disk's host remembers of the last measurement must not count.
  std::mt19937_64 random{std::random_device{}()};
  const auto submit = [&](uint64_t tag) {
    const uint64_t offset = random() % n_places * kIoAlignment;
    const bool taken = reader->submit({file.descriptor(), offset, memory.data() + block * tag, block, tag});
    RL_CHECK(taken);
  };

  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (int i = 0; i < depth; ++i) submit(static_cast<uint64_t>(i));
  std::vector<experts::ReadCompletion> completions(static_cast<size_t>(depth));
  uint64_t bytes = 0;
  for (int in_flight = depth; in_flight > 0;) {
    const size_t n = reader->complete(completions, /*wait=*/true);
    const bool go_on = elapsed() < seconds;
    for (const experts::ReadCompletion& read : std::span(completions).first(n)) {
      if (read.result <= 0 && read.result != -EINTR && read.result != -EAGAIN) {
        fail("{}: cannot measure the disk: {}", path,
             read.result == 0 ? "the file became shorter" : std::strerror(static_cast<int>(-read.result)));
      }
      bytes += static_cast<uint64_t>(std::max<int64_t>(read.result, 0));
      if (go_on) {
        submit(read.tag);
      } else {
        --in_flight;
      }
    }
  }
  return {static_cast<double>(bytes) / elapsed(), file.direct(), reader->name()};
}

}  // namespace redlite::machine
