#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "http/connection.h"
#include "http/head.h"

namespace redlite::http {

struct Limits {
  int connections = 256;                    ///< at a time, each with a thread; an idle one gives way
  size_t body_bytes = 8 << 20;              ///< of one request
  size_t all_bodies_bytes = 64 << 20;       ///< of all requests that are being read or answered
  std::chrono::milliseconds idle{30'000};   ///< between two requests of a connection
  std::chrono::milliseconds head{10'000};   ///< for a head to arrive
  std::chrono::milliseconds body{60'000};   ///< for a body to arrive
  std::chrono::milliseconds write{30'000};  ///< without the client taking a byte
};

class Server;

/// One request and the way to answer it. Used by the thread that serves the connection; any call may throw
/// ClientGone, which the handler lets pass.
class Exchange {
 public:
  using Headers = std::vector<std::pair<std::string_view, std::string>>;

  const Head& head() const { return head_; }
  /// Address and port of the other side, such as "127.0.0.1" or "::1".
  const std::string& peer() const { return peer_; }

  /// Reads the body. Its bytes count against Limits::all_bodies_bytes until this exchange is over, for as
  /// long as what was made of them may live. Throws Refused.
  std::string read_body();

  /// A whole answer.
  void answer(int status, std::string_view type, std::string_view body, const Headers& headers = {});

  /// An answer in pieces: begin(), write()s, end(). Without end() the connection is closed in a way that
  /// tells the client that something is missing.
  void begin(int status, std::string_view type, const Headers& headers = {});
  void write(std::string_view bytes);
  void end();

  /// Whether anything was sent: then an error can no longer be told by a status.
  bool begun() const { return state_ != State::Fresh; }
  bool client_gone() const { return connection_.client_gone(); }
  /// Whether the server is being stopped: what would not end by itself is to end.
  bool closing() const;
  /// ... and its grace is over: everything is to end.
  bool stopping() const;

 private:
  friend class Server;
  enum class State : uint8_t { Fresh, Streaming, Ended };

  Exchange(Server& server, Connection& connection, Head head, std::string peer);
  ~Exchange();
  std::string head_text(int status, std::string_view type, const Headers& headers) const;

  Server& server_;
  Connection& connection_;
  Head head_;
  std::string peer_;
  State state_ = State::Fresh;
  bool body_read_ = false;
  size_t reserved_ = 0;
};

/// An HTTP/1.1 server with a thread for each connection: models answer few clients at a time, and slowly, so
/// that what matters is that no client can hold up another or make memory grow.
class Server {
 public:
  /// Answers a request. What it throws, ClientGone apart, is answered with `on_refused` or, for what is no
  /// Refused, ends the program as any uncaught exception does.
  using Handler = std::function<void(Exchange&)>;
  /// Answers a request that is refused; `exchange` has an empty head where none could be read.
  using RefusedHandler = std::function<void(Exchange&, const Refused&)>;

  /// Listens; port 0: any free one. Throws Error.
  Server(const std::string& host, int port, const Limits& limits, Handler handler, RefusedHandler on_refused);
  /// stop() without grace.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  int connections() const;

  /// Accepts no more; closes idle connections; gives requests `grace` to finish, then makes
  /// Exchange::stopping() true and, half a second later, breaks what is left. Returns when all threads have
  /// ended.
  void stop(std::chrono::milliseconds grace);

 private:
  friend class Exchange;

  void accept_all();
  void serve(Connection& connection, const std::string& peer, bool is_welcome);
  /// A connection's thread has no more to do with it.
  void leave(Connection& connection);
  /// Serves one request; false when the connection is to be closed.
  bool serve_one(Connection& connection, const std::string& peer);
  /// Whether a connection may be served; the longest idle one gives way to it. Under the mutex.
  bool welcome(Connection& connection);
  void reserve(size_t bytes);

  const Limits limits_;
  const Handler handler_;
  const RefusedHandler on_refused_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> closing_ = false;   ///< no more requests
  std::atomic<bool> stopping_ = false;  ///< grace is over
  std::atomic<size_t> body_bytes_ = 0;  ///< of all bodies

  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::set<Connection*> open_;     ///< by their threads
  std::vector<Connection*> idle_;  ///< ... of these, those that wait for a request, the longest first
  int threads_ = 0;                ///< that serve a connection, or are about to
  std::thread acceptor_;
};

}  // namespace redlite::http
