#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace redlite::experts {

/// One positioned read of a file into memory that stays valid until its completion was fetched.
struct ReadRequest {
  int fd = -1;
  uint64_t offset = 0;
  std::byte* into = nullptr;
  size_t bytes = 0;
  uint64_t tag = 0;  ///< comes back with the completion
};

/// The outcome of one request: the bytes read (possibly fewer than asked for; 0 at the file's end), or a
/// negative errno. Nothing is retried below this interface.
struct ReadCompletion {
  uint64_t tag = 0;
  int64_t result = 0;
};

/// Asynchronous reads, the least a backend must do; ExpertStore makes them reliable. Driven by one thread.
class Reader {
 public:
  /// Waits until nothing is in flight: nobody writes to a request's memory afterwards.
  virtual ~Reader() = default;
  /// Takes one request, or returns false when the queue is full (then fetch completions first). It may start
  /// only at the next complete().
  virtual bool submit(const ReadRequest& request) = 0;
  /// Starts everything submitted and fetches completions, in any order, at most out.size(). With `wait`, and
  /// if anything is in flight, blocks until there is at least one. Returns how many.
  virtual size_t complete(std::span<ReadCompletion> out, bool wait) = 0;
  /// "io_uring", "threads"
  virtual std::string_view name() const = 0;
};

/// Most requests a reader has in flight: all that a long prefill reads ahead for a layer, so that the disk
/// stays busy while nobody looks after it.
inline constexpr int kReadDepth = 2048;

/// io_uring; nullptr where the kernel (or a sandbox) has none or the build has no liburing.
std::unique_ptr<Reader> make_uring_reader();
/// A pool of threads that call pread().
std::unique_ptr<Reader> make_thread_reader();
/// The best there is.
std::unique_ptr<Reader> make_reader();

}  // namespace redlite::experts
