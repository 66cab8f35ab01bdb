#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "experts/reader.h"

namespace redlite::experts {
namespace {

/// With more in flight, further requests are started by the kernel's own threads. Starting one takes about 20
/// microseconds; of memory never used before it also clears the pages, and where the disk's queue (256
/// requests here) is full it waits. What a token misses is fewer and must not take the detour.
constexpr int kInline = 64;

class UringReader final : public Reader {
 public:
  static std::unique_ptr<Reader> make() {
    std::unique_ptr<UringReader> reader(new UringReader);
    // With these flags completions wait for our next system call instead of interrupting a thread that
    // computes; kernels before 5.19 do not know them.
    constexpr unsigned kFlags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    // Kernels before 5.12 count the ring as locked memory, of which a process may have little.
    constexpr int kSmallDepth = 128;
    for (const auto& [depth, flags] :
         {std::pair{kReadDepth, kFlags}, std::pair{kReadDepth, 0u}, std::pair{kSmallDepth, 0u}}) {
      if (io_uring_queue_init(static_cast<unsigned>(depth), &reader->ring_, flags) != 0) continue;
      reader->depth_ = depth;
      break;
    }
    if (reader->depth_ == 0) return nullptr;
    io_uring_probe* probe = io_uring_get_probe_ring(&reader->ring_);
    const bool can_read = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    return can_read ? std::unique_ptr<Reader>(std::move(reader)) : nullptr;
  }

  ~UringReader() override {
    if (depth_ == 0) return;
    ReadCompletion ignored[16];
    while (in_flight_ > 0) complete(ignored, true);
    io_uring_queue_exit(&ring_);
  }

  bool submit(const ReadRequest& request) override {
    if (in_flight_ == depth_) return false;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return false;
    io_uring_prep_read(sqe, request.fd, request.into, static_cast<unsigned>(request.bytes), request.offset);
    sqe->user_data = request.tag;
    if (in_flight_ >= kInline) sqe->flags |= IOSQE_ASYNC;
    ++in_flight_;
    return true;
  }

  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    if (io_uring_sq_ready(&ring_) > 0) enter(0);
    size_t n = fetch(out);
    while (wait && n == 0 && in_flight_ > 0) {
      enter(1);
      n = fetch(out);
    }
    return n;
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  UringReader() = default;

  /// Hands what was submitted to the kernel and waits for `completions`. What the kernel did not take stays
  /// in the queue for the next call.
  void enter(unsigned completions) {
    const int rc = io_uring_submit_and_wait(&ring_, completions);
    if (rc >= 0 || rc == -EINTR) return;
    // The kernel is short of memory, or of room for completions, which the next fetch() makes.
    RL_CHECK(rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM, "io_uring_enter: {}", rc);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  size_t fetch(std::span<ReadCompletion> out) {
    size_t n = 0;
    io_uring_cqe* cqe = nullptr;
    while (n < out.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      out[n++] = {cqe->user_data, cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
    }
    return n;
  }

  io_uring ring_{};
  int depth_ = 0;  ///< requests it holds; 0: not open
  int in_flight_ = 0;
};

}  // namespace

std::unique_ptr<Reader> make_uring_reader() {
  return UringReader::make();
}

}  // namespace redlite::experts
