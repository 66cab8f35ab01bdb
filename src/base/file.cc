#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/output.h"

namespace redlite {

File::File(const std::string& path) : path_(path) {
  if (path.empty()) fail("the name of the file to read is empty");
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // or a pipe would be waited for
  if (fd_ < 0) fail("{}: cannot open: {}", path, std::strerror(errno));
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
    const std::string reason = S_ISDIR(st.st_mode) ? "it is a directory" : "it is not a regular file";
    ::close(std::exchange(fd_, -1));
    fail("{}: cannot read: {}", path, reason);
  }
  ::fcntl(fd_, F_SETFL, 0);  // io_uring would not wait either
  size_ = static_cast<uint64_t>(st.st_size);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void File::read_exactly(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}: read failed at offset {}: {}", path_, offset, std::strerror(errno));
    if (n == 0) fail("{}: the file ends at offset {}, {} bytes short", path_, offset, out.size());
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
}

MappedFile::MappedFile(const std::string& path) : file_(path) {
  if (file_.size() == 0) return;
  void* p = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (p == MAP_FAILED) fail("{}: cannot map {} bytes: {}", path, file_.size(), std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(p), file_.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::string read_text_file(const std::string& path) {
  const File file(path);
  std::string text(file.size(), '\0');
  file.read_exactly(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  // A device, a pipe or a link (/dev/stdout) is written where it is: a file must not take its place.
  std::optional<TemporaryName> temporary;
  if (!is_special_file(path)) temporary.emplace(path);
  const std::string& written = temporary ? temporary->text() : path;
  const int fd = ::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("{}: cannot create: {}", written, std::strerror(errno));
  const auto give_up = [&] {
    const std::string reason = std::strerror(errno);
    ::close(fd);
    fail("{}: writing failed: {}", path, reason);
  };
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up();
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  if (temporary && ::fsync(fd) != 0) give_up();  // a pipe or a terminal cannot be synced
  ::close(fd);
  if (temporary) temporary->rename();
}

}  // namespace redlite
