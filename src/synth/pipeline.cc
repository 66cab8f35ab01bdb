#include "synth/pipeline.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace redlite::synth {

namespace {

struct Slot {
  std::vector<std::byte> bytes;
  bool ready = false;
};

// Piece i goes through slot i % slots: it is made when piece i - slots has been taken.
struct State {
  std::mutex mutex;
  std::condition_variable made;
  std::condition_variable taken;
  std::vector<Slot> slots;
  size_t next = 0;     // to be made
  size_t n_taken = 0;  // handed over
  bool stop = false;
  std::exception_ptr error;
};

}  // namespace

void run_pipeline(const std::vector<size_t>& sizes, int threads,
                  const std::function<void(size_t, std::span<std::byte>)>& make,
                  const std::function<void(std::span<const std::byte>)>& take) {
  State state;
  state.slots.resize(static_cast<size_t>(threads) * 4);
  const auto work = [&] {
    std::unique_lock lock(state.mutex);
    while (true) {
      state.taken.wait(lock, [&] {
        return state.stop || state.next >= sizes.size() || state.next < state.n_taken + state.slots.size();
      });
      if (state.stop || state.next >= sizes.size()) return;
      const size_t i = state.next++;
      Slot& slot = state.slots[i % state.slots.size()];
      lock.unlock();
      std::exception_ptr error;
      try {
        slot.bytes.resize(sizes[i]);
        make(i, slot.bytes);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot.ready = true;
      if (error) {
        state.error = error;
        state.stop = true;
      }
      state.made.notify_one();
    }
  };
  std::vector<std::thread> workers;
  const auto finish = [&] {
    {
      const std::lock_guard lock(state.mutex);
      state.stop = true;
    }
    state.taken.notify_all();
    for (std::thread& t : workers) t.join();
  };
  try {
    try {
      for (int t = 0; t < threads; ++t) workers.emplace_back(work);
    } catch (const std::system_error& e) {
      if (workers.empty()) fail("cannot start a thread: {}", e.code().message());  // else fewer will do
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      Slot& slot = state.slots[i % state.slots.size()];
      {
        std::unique_lock lock(state.mutex);
        state.made.wait(lock, [&] { return slot.ready || state.error; });
        if (state.error) break;
      }
      take(slot.bytes);
      {
        const std::lock_guard lock(state.mutex);
        slot.ready = false;
        state.n_taken = i + 1;
      }
      state.taken.notify_all();
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
  if (state.error) std::rethrow_exception(state.error);
}

}  // namespace redlite::synth
