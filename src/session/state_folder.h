#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "session/kept_state.h"
#include "session/state_file.h"

namespace redlite::session {

/// Takes a line for whoever runs the program; from any thread.
using Log = std::function<void(const std::string& line)>;

/// A folder of states that outlive the process, least recently used first out. Several processes may share
/// it.
///
/// Files are written one after another by a thread of its own. Whatever is wrong with a file or the disk is a
/// line in the log and a state less, nothing worse. Thread-safe.
class StateFolder {
 public:
  /// Makes the folder if there is none. Throws Error when it cannot be used.
  StateFolder(std::string path, const StateShape& shape, uint64_t most_bytes, Log log);
  /// Waits for what is to be written.
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  /// A state here that serves a prompt better than `least` tokens.
  struct Found {
    int position;
    std::string name;
  };
  std::optional<Found> find(std::span<const model::Token> prompt, int least) const;

  struct Loaded {
    StateHead head;
    StateContent content;
  };
  /// Reads what find() found; nullopt if it is bad or gone, after which find() finds something else.
  std::optional<Loaded> load(const Found& found);

  /// Queues a state to be written, in place of those that it continues. The queue holds a few: false, and
  /// nothing done, if it is full; or `wait` until it is not.
  bool save(std::shared_ptr<const KeptState> state, bool wait);
  /// Until the queue is empty.
  void flush();
  /// It is not.
  bool writing() const;

  int size() const;
  uint64_t bytes() const;

 private:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
    int64_t used = 0;  ///< time of last use, nanoseconds
    StateHead head;    ///< without tokens: a file that is of no use to us
  };

  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  void read_folder();
  void write_loop();
  void write(const KeptState& state);
  void remove(const std::string& name);
  void make_room(uint64_t bytes);

  const std::string path_;
  const StateShape shape_;
  const uint64_t most_bytes_;
  const Log log_;

  mutable std::mutex mutex_;  ///< of all that follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::deque<std::shared_ptr<const KeptState>> queue_;
  bool writing_ = false;
  bool stop_ = false;
  std::thread writer_;
};

}  // namespace redlite::session
