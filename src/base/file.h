#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace redlite {

/// A file open for reading. Errors name the path and the system's reason.
class File {
 public:
  explicit File(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int descriptor() const { return fd_; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Reads exactly out.size() bytes at offset; retries EINTR and short reads, throws Error at the file's end.
  void read_exactly(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// A whole file mapped read-only. Pages are shared with the page cache and count as the process's memory only
/// when touched.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const File& file() const { return file_; }

 private:
  File file_;
  std::span<const std::byte> bytes_;
};

/// Reads a whole (text) file. Throws Error.
std::string read_text_file(const std::string& path);

/// Writes a file so that it is either the old one or the whole new one: a temporary beside it, then rename.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace redlite
