#include "http/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace redlite::http {
namespace {

#ifndef MSG_NOSIGNAL
constexpr int MSG_NOSIGNAL = 0;
#endif

constexpr size_t kReadBytes = 16 << 10;

/// Waits until the socket is ready; false at the deadline.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw ClientGone("poll failed");
  }
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Connection::Connection(int descriptor) : fd_(descriptor) {}

Connection::~Connection() {
  ::close(fd_);
}

bool Connection::fill(Clock::time_point deadline) {
  if (used_ == buffer_.size()) {
    buffer_.clear();
    used_ = 0;
  }
  std::array<char, kReadBytes> bytes;  // NOLINT: filled by recv
  while (true) {
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(bytes.data(), static_cast<size_t>(n));
      return true;
    }
    if (n == 0) return false;
    if (!would_block()) throw ClientGone("the connection was reset");
    if (!wait_for(fd_, POLLIN, deadline)) throw Refused(408, "the request did not arrive in time");
  }
}

std::optional<std::string> Connection::read_head(std::chrono::milliseconds idle,
                                                 std::chrono::milliseconds head) {
  const Clock::time_point idle_end = Clock::now() + idle;
  // One empty line before a request is to be forgiven (RFC 9112, 2.2).
  bool skipped = false;
  const auto begun = [&] {
    if (!skipped && buffer_.size() - used_ >= 2 && buffer_.compare(used_, 2, "\r\n") == 0) {
      used_ += 2;
      skipped = true;
    }
    return used_ < buffer_.size();
  };
  while (!begun()) {
    if (!wait_for(fd_, POLLIN, idle_end)) return std::nullopt;
    if (!fill(idle_end)) return std::nullopt;
  }
  const Clock::time_point deadline = Clock::now() + head;
  size_t searched = used_;
  while (true) {
    const size_t end = buffer_.find("\r\n\r\n", searched);
    if (end != std::string::npos && end + 4 - used_ <= kMaxHeadBytes) {
      std::string result = buffer_.substr(used_, end + 4 - used_);
      used_ = end + 4;
      return result;
    }
    if (buffer_.size() - used_ > kMaxHeadBytes)
      throw Refused(431, "the request's head is longer than 32 KiB");
    searched = std::max(used_, buffer_.size() - std::min<size_t>(buffer_.size(), 3));
    if (!fill(deadline)) throw ClientGone("the connection was closed in the middle of a head");
  }
}

void Connection::take(std::string& out, size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    if (used_ == buffer_.size() && !fill(deadline))
      throw ClientGone("the connection was closed in the middle of a body");
    const size_t n = std::min(bytes, buffer_.size() - used_);
    out.append(buffer_, used_, n);
    used_ += n;
    bytes -= n;
  }
}

std::string_view Connection::chunk_line(Clock::time_point deadline) {
  // The longest line that makes sense is a size of eight digits.
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(used_);
    const size_t end = rest.find("\r\n");
    if (end <= 8) {  // npos is larger
      used_ += end + 2;
      return rest.substr(0, end);
    }
    if (rest.size() > 9) throw Refused(400, "a chunk of the body has no size of its own");
    if (!fill(deadline)) throw ClientGone("the connection was closed in the middle of a body");
  }
}

std::string Connection::read_chunks(size_t most, Clock::time_point deadline, const Reserve& reserve) {
  std::string body;
  while (true) {
    size_t size = 0;
    const std::string_view digits = chunk_line(deadline);
    if (digits.empty()) throw Refused(400, "a chunk of the body has no size");
    for (const char c : digits) {
      const std::string_view hex = "0123456789abcdef";
      const size_t digit = hex.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (digit == std::string_view::npos) throw Refused(400, "a chunk's size is not a hexadecimal number");
      size = size * 16 + digit;
    }
    if (size == 0) break;
    if (size > most - body.size()) throw Refused(413, "the request's body is too large");
    reserve(size);
    take(body, size, deadline);
    if (!chunk_line(deadline).empty()) throw Refused(400, "a chunk is longer than its size says");
  }
  if (!chunk_line(deadline).empty()) throw Refused(400, "headers behind the body are not accepted");
  return body;
}

std::string Connection::read_body(const Head& head, size_t most, std::chrono::milliseconds timeout,
                                  const Reserve& reserve) {
  const Clock::time_point deadline = Clock::now() + timeout;
  if (head.chunked) return read_chunks(most, deadline, reserve);
  const uint64_t length = head.content_length.value_or(0);
  if (length > most) throw Refused(413, "the request's body is too large");
  reserve(length);
  std::string body;
  take(body, length, deadline);
  return body;
}

void Connection::write(std::string_view bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && !would_block()) throw ClientGone("the connection was closed");
    if (!wait_for(fd_, POLLOUT, Clock::now() + patience)) throw ClientGone("the client takes nothing");
  }
}

bool Connection::client_gone() const {
  char byte = 0;
  const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && !would_block());
}

void Connection::linger() {
  constexpr std::chrono::milliseconds kPatience{1000};
  ::shutdown(fd_, SHUT_WR);
  const Clock::time_point deadline = Clock::now() + kPatience;
  std::array<char, kReadBytes> bytes;  // NOLINT: filled by recv
  try {
    while (wait_for(fd_, POLLIN, deadline)) {
      const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && !would_block())) return;
    }
  } catch (const ClientGone&) {
  }
}

void Connection::shut_down() {
  ::shutdown(fd_, SHUT_RDWR);
}

}  // namespace redlite::http
