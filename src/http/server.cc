#include "http/server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace redlite::http {
namespace {

constexpr int kBacklog = 128;
constexpr int kPolitelyRefused = 32;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

/// A listening socket, or -1 with errno set.
int listen_at(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, address.ai_socktype, address.ai_protocol);
  if (fd < 0) return -1;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  // So that a restarted server need not wait for old connections to time out; a second server on the same
  // port is still an error.
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

int open_listener(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int found = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (found != 0) fail("--host {}: {}", host, ::gai_strerror(found));
  const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    const int fd = listen_at(*address);
    if (fd >= 0) return fd;
  }
  fail("cannot listen at {} port {}: {}{}", host, port, std::strerror(errno),
       errno == EADDRINUSE ? "; choose another with --port" : "");
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  std::array<char, NI_MAXSERV> service{};
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service.data(), service.size(),
                    NI_NUMERICSERV) != 0)
    return 0;
  return std::atoi(service.data());
}

std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> name{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, name.data(), name.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "unknown";
  return name.data();
}

}  // namespace

Exchange::Exchange(Server& server, Connection& connection, Head head, std::string peer)
    : server_(server), connection_(connection), head_(std::move(head)), peer_(std::move(peer)) {}

Exchange::~Exchange() {
  server_.body_bytes_ -= reserved_;
}

std::string Exchange::read_body() {
  RL_CHECK(!body_read_);
  body_read_ = true;
  if (head_.expects_continue && head_.has_body())
    connection_.write("HTTP/1.1 100 Continue\r\n\r\n", server_.limits_.write);
  const auto reserve = [this](size_t bytes) {
    server_.reserve(bytes);
    reserved_ += bytes;
  };
  try {
    return connection_.read_body(head_, server_.limits_.body_bytes, server_.limits_.body, reserve);
  } catch (const Refused&) {
    body_read_ = false;  // not to its end
    throw;
  }
}

std::string Exchange::head_text(int status, std::string_view type, const Headers& headers) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  if (!type.empty()) text += fmt::format("Content-Type: {}\r\n", type);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  if (head_.keep_alive && !server_.closing_) {
    text += fmt::format("Keep-Alive: timeout={}\r\n", server_.limits_.idle.count() / 1000);
    if (head_.minor_version == 0) text += "Connection: keep-alive\r\n";
  } else {
    text += "Connection: close\r\n";
  }
  return text;
}

void Exchange::answer(int status, std::string_view type, std::string_view body, const Headers& headers) {
  RL_CHECK(state_ == State::Fresh);
  state_ = State::Ended;
  if (head_.has_body() && !body_read_) head_.keep_alive = false;
  std::string text = head_text(status, type, headers);
  if (status != 304) text += fmt::format("Content-Length: {}\r\n", body.size());
  text += "\r\n";
  if (head_.method != "HEAD") text += body;
  connection_.write(text, server_.limits_.write);
}

void Exchange::begin(int status, std::string_view type, const Headers& headers) {
  RL_CHECK(state_ == State::Fresh);
  state_ = State::Streaming;
  if (head_.has_body() && !body_read_) head_.keep_alive = false;
  if (head_.minor_version == 0) head_.keep_alive = false;  // the end of the connection is the answer's
  std::string text = head_text(status, type, headers);
  if (head_.minor_version == 1) text += "Transfer-Encoding: chunked\r\n";
  connection_.write(text + "\r\n", server_.limits_.write);
}

void Exchange::write(std::string_view bytes) {
  RL_CHECK(state_ == State::Streaming);
  if (bytes.empty()) return;
  if (head_.minor_version == 0) {
    connection_.write(bytes, server_.limits_.write);
  } else {
    connection_.write(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes), server_.limits_.write);
  }
}

void Exchange::end() {
  RL_CHECK(state_ == State::Streaming);
  state_ = State::Ended;
  if (head_.minor_version == 1) connection_.write("0\r\n\r\n", server_.limits_.write);
}

bool Exchange::closing() const {
  return server_.closing_;
}

bool Exchange::stopping() const {
  return server_.stopping_;
}

Server::Server(const std::string& host, int port, const Limits& limits, Handler handler,
               RefusedHandler on_refused)
    : limits_(limits),
      handler_(std::move(handler)),
      on_refused_(std::move(on_refused)),
      listener_(open_listener(host, port)),
      port_(port_of(listener_)),
      acceptor_([this] { accept_all(); }) {}

Server::~Server() {
  stop(std::chrono::milliseconds(0));
}

int Server::connections() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

void Server::reserve(size_t bytes) {
  if (body_bytes_ += bytes; body_bytes_ <= limits_.all_bodies_bytes) return;
  body_bytes_ -= bytes;
  throw Refused(503, "too many large requests at a time; try again");
}

void Server::accept_all() {
  while (!closing_) {
    // Looks up now and then, should the system not wake it when the socket is shut down.
    pollfd entry{listener_, POLLIN, 0};
    if (::poll(&entry, 1, 1000) <= 0 || closing_) continue;
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) {
      // A client that left again, or no descriptors: neither is a reason to stop.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const auto connection = std::make_shared<Connection>(fd);
    bool is_welcome = false;
    {
      std::unique_lock lock(mutex_);
      // Some beyond the limit are told so; a flood of them is not worth a thread each. But those that gave
      // way may need a moment to end.
      const auto room = [this] { return threads_ < limits_.connections + kPolitelyRefused; };
      if (!left_.wait_for(lock, std::chrono::milliseconds(50), room)) continue;
      is_welcome = welcome(*connection);
      ++threads_;
    }
    try {
      std::thread([this, fd, is_welcome, connection] {
        serve(*connection, peer_of(fd), is_welcome);
      }).detach();
    } catch (const std::system_error&) {  // no more threads to be had
      leave(*connection);
    }
  }
}

void Server::serve(Connection& connection, const std::string& peer, bool is_welcome) {
  try {
    if (is_welcome) {
      while (serve_one(connection, peer)) {
      }
    } else {
      Exchange exchange(*this, connection, Head{}, peer);
      exchange.head_.keep_alive = false;
      on_refused_(exchange, Refused(503, "too many connections; try again"));
      connection.linger();
    }
  } catch (const ClientGone&) {
  }
  leave(connection);
}

void Server::leave(Connection& connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(&connection);
  std::erase(idle_, &connection);
  --threads_;
  left_.notify_all();
}

bool Server::welcome(Connection& connection) {
  bool room = static_cast<int>(open_.size()) < limits_.connections;
  if (!room && !idle_.empty()) {
    idle_.front()->shut_down();
    open_.erase(idle_.front());
    idle_.erase(idle_.begin());
    room = true;
  }
  open_.insert(&connection);
  if (room) idle_.push_back(&connection);
  return room && !closing_;
}

bool Server::serve_one(Connection& connection, const std::string& peer) {
  std::optional<std::string> bytes;
  Head head;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return false;
      if (std::ranges::find(idle_, &connection) == idle_.end()) idle_.push_back(&connection);
    }
    const auto busy = [&] {
      const std::lock_guard lock(mutex_);
      std::erase(idle_, &connection);
    };
    try {
      bytes = connection.read_head(limits_.idle, limits_.head);
    } catch (...) {
      busy();
      throw;
    }
    busy();
    if (!bytes) return false;
    head = parse_head(*bytes);
  } catch (const Refused& e) {
    Exchange exchange(*this, connection, Head{}, peer);
    exchange.head_.keep_alive = false;
    on_refused_(exchange, e);
    connection.linger();
    return false;
  }

  Exchange exchange(*this, connection, std::move(head), peer);
  try {
    handler_(exchange);
  } catch (const Refused& e) {
    if (exchange.begun()) return false;
    exchange.head_.keep_alive = false;
    on_refused_(exchange, e);
  }
  if (exchange.state_ != Exchange::State::Ended) return false;
  if (exchange.head_.keep_alive && !closing_) return true;
  if (exchange.head_.has_body() && !exchange.body_read_) connection.linger();
  return false;
}

void Server::stop(std::chrono::milliseconds grace) {
  if (!acceptor_.joinable()) return;
  closing_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);

  std::unique_lock lock(mutex_);
  for (Connection* connection : idle_) connection->shut_down();
  const auto gone = [this] { return threads_ == 0; };
  if (!left_.wait_for(lock, grace, gone)) {
    stopping_ = true;
    if (!left_.wait_for(lock, std::chrono::milliseconds(500), gone)) {
      for (Connection* connection : open_) connection->shut_down();
      left_.wait(lock, gone);
    }
  }
}

}  // namespace redlite::http
