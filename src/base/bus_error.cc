#include "base/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace redlite {
namespace {

// All that runs in the handler is async-signal-safe: system calls and arithmetic on buffers of its own.

/// A line of text put together without allocation; what does not fit is cut off.
class Line {
 public:
  void add(std::string_view text) {
    const size_t n = std::min(text.size(), sizeof(text_) - size_);
    std::memcpy(text_ + size_, text.data(), n);
    size_ += n;
  }
  void add(uint64_t number) {
    char digits[20];
    size_t n = sizeof(digits);
    do {
      digits[--n] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    add({digits + n, sizeof(digits) - n});
  }
  void clear() { size_ = 0; }
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[4600];  // a path of PATH_MAX and the words around it
  size_t size_ = 0;
};

uint64_t take_hex(std::string_view& text) {
  uint64_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<uint64_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

/// From a line of /proc/self/maps, "first-last rwxp offset device inode path": the path of the file and the
/// offset in it of `address`. False if the line is about another range or no file.
bool find_in_mapping(std::string_view line, uint64_t address, std::string_view& path, uint64_t& offset) {
  const uint64_t first = take_hex(line);
  if (!line.starts_with('-')) return false;
  line.remove_prefix(1);
  const uint64_t last = take_hex(line);
  if (address < first || address >= last) return false;
  const size_t slash = line.find('/');
  if (slash == std::string_view::npos || line.size() < 6) return false;
  path = line.substr(slash);
  line.remove_prefix(6);  // " rwxp "
  offset = take_hex(line) + (address - first);
  return true;
}

/// Writes "path: at offset N" if the address lies in a mapped file.
bool name_place(uint64_t address, Line& out) {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  static Line line;
  static char buffer[4096];
  bool found = false;
  ssize_t n = 0;
  while (!found && (n = ::read(fd, buffer, sizeof(buffer))) > 0) {
    for (ssize_t i = 0; i < n && !found; ++i) {
      if (buffer[i] != '\n') {
        line.add({buffer + i, 1});
        continue;
      }
      std::string_view path;
      uint64_t offset = 0;
      found = find_in_mapping(line.text(), address, path, offset);
      if (found) {
        out.add(path);
        out.add(": cannot read at offset ");
        out.add(offset);
      }
      line.clear();
    }
  }
  ::close(fd);
  return found;
}

void handle(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // a misaligned access or the like: a bug, which deserves its core dump
    ::signal(signal, SIG_DFL);
    return;
  }
  static Line out;
  out.add("redlite: ");
  if (!name_place(reinterpret_cast<uint64_t>(info->si_addr), out)) out.add("cannot read a mapped file");
  out.add(": the file became shorter while it was in use, or its disk failed\n");
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, out.text().data(), out.text().size());
  ::_exit(1);
}

}  // namespace

void report_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace redlite
