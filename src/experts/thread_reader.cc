#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "experts/reader.h"

namespace redlite::experts {
namespace {

/// Each thread has one pread() in flight. They sleep in the kernel, so they cost the computation little even
/// where they outnumber the cores.
constexpr int kThreads = 32;

class ThreadReader final : public Reader {
 public:
  ThreadReader() {
    threads_.reserve(kThreads);
    try {
      for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      if (threads_.empty())
        fail("cannot start a thread that reads experts: {}", e.code().message());  // else fewer will do
    }
  }

  ~ThreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      requests_.clear();
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  bool submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_ == kReadDepth) return false;
      ++in_flight_;
      requests_.push_back(request);
    }
    wake_.notify_one();
    return true;
  }

  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait) arrived_.wait(lock, [this] { return !completions_.empty() || in_flight_ == 0; });
    size_t n = 0;
    for (; n < out.size() && !completions_.empty(); ++n, --in_flight_) {
      out[n] = completions_.front();
      completions_.pop_front();
    }
    return n;
  }

  std::string_view name() const override { return "threads"; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const ReadRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const ssize_t n = ::pread(request.fd, request.into, request.bytes, static_cast<off_t>(request.offset));
      const int64_t result = n < 0 ? -errno : n;
      lock.lock();
      completions_.push_back({request.tag, result});
      arrived_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;     ///< requests or stop
  std::condition_variable arrived_;  ///< completions
  std::deque<ReadRequest> requests_;
  std::deque<ReadCompletion> completions_;
  int in_flight_ = 0;  ///< submitted, completion not fetched
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Reader> make_thread_reader() {
  return std::make_unique<ThreadReader>();
}

#ifndef REDLITE_HAVE_LIBURING
std::unique_ptr<Reader> make_uring_reader() {
  return nullptr;
}
#endif

std::unique_ptr<Reader> make_reader() {
  std::unique_ptr<Reader> reader = make_uring_reader();
  return reader ? std::move(reader) : make_thread_reader();
}

}  // namespace redlite::experts
