#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace redlite::http {

/// A client that sends what it is told to, be it HTTP or not.
class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// False: the server closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  /// What came until the server closed, `text` had come (beyond what was taken before), or `seconds` were
  /// over.
  std::string receive(std::string_view text = "", double seconds = 10) {
    std::string got = std::exchange(rest_, "");
    while (text.empty() || got.find(text) == std::string::npos) {
      pollfd entry{fd_, POLLIN, 0};
      if (::poll(&entry, 1, static_cast<int>(seconds * 1000)) <= 0) return got + "[timeout]";
      std::array<char, 4096> bytes{};
      const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (n <= 0) return got;
      got.append(bytes.data(), static_cast<size_t>(n));
    }
    const size_t end = got.find(text) + text.size();
    rest_ = got.substr(end);
    return got.substr(0, end);
  }

  /// Sends a request and takes its whole answer, which must have a Content-Length.
  std::string ask(std::string_view request) {
    send(request);
    std::string head = receive("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    size_t left = std::stoul(head.substr(at + 16));
    while (left > 0) {
      if (rest_.empty()) {
        std::array<char, 4096> bytes{};
        const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
        if (n <= 0) break;
        rest_.append(bytes.data(), static_cast<size_t>(n));
      }
      const size_t n = std::min(left, rest_.size());
      head += rest_.substr(0, n);
      rest_.erase(0, n);
      left -= n;
    }
    return head;
  }

  void shut_down_sending() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  std::string rest_;
};

}  // namespace redlite::http
