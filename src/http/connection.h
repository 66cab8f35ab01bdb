#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "http/head.h"

namespace redlite::http {

using Clock = std::chrono::steady_clock;

/// The client closed the connection, or does not take what is sent to it.
class ClientGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A connected socket that is read and written with deadlines. Owned by one thread; only shut_down() may come
/// from another.
class Connection {
 public:
  /// Takes the socket over.
  explicit Connection(int descriptor);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The next request's head with its empty line; what was read beyond waits for the next call. nullopt: the
  /// client closed the connection or sent nothing within `idle`. Throws Refused (431, 408) for a head that is
  /// too long, or not complete within `head` of its first byte.
  std::optional<std::string> read_head(std::chrono::milliseconds idle, std::chrono::milliseconds head);

  /// Asked before `bytes` more of a body are read into memory; throws Refused if they may not.
  using Reserve = std::function<void(size_t bytes)>;
  /// The body that a head announces, of at most `most` bytes. Throws Refused (413, 408, 400), ClientGone.
  std::string read_body(const Head& head, size_t most, std::chrono::milliseconds timeout,
                        const Reserve& reserve);

  /// Sends everything. Throws ClientGone, also when the client takes nothing for `patience`.
  void write(std::string_view bytes, std::chrono::milliseconds patience);

  /// Whether the client has closed the connection (its writing half suffices) or reset it.
  bool client_gone() const;

  /// Ends the connection so that an answer to a request that was not read to its end still arrives: sends the
  /// end, then reads and forgets for a moment what the client is sending.
  void linger();

  /// Makes every call in progress and every later one fail. May be called by any thread.
  void shut_down();

 private:
  /// Reads what is there into the buffer. False: the client closed its half. Throws Refused 408, ClientGone.
  bool fill(Clock::time_point deadline);
  void take(std::string& out, size_t bytes, Clock::time_point deadline);
  std::string_view chunk_line(Clock::time_point deadline);
  std::string read_chunks(size_t most, Clock::time_point deadline, const Reserve& reserve);

  int fd_;
  std::string buffer_;  ///< read and not yet used, from used_ on
  size_t used_ = 0;
};

}  // namespace redlite::http
