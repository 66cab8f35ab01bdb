#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experts/layout.h"
#include "experts/pool.h"
#include "experts/reader.h"
#include "experts/shards.h"

namespace redlite::experts {

/// An expert that was read, or could not be.
struct Arrival {
  int32_t slot = -1;
  std::string error;  ///< empty: all its bytes are there; else one line with file, offset and expert
};

/// Reads experts from the model's files into slots, asynchronously and in full: large reads are cut into
/// chunks that are in flight together, short and interrupted reads are continued, and an expert counts as
/// arrived only when every byte is there and its file is still the one that was opened.
///
/// Driven by one thread. The destructor waits for reads in flight, so that a slot's memory may go afterwards.
class ExpertStore {
 public:
  ExpertStore(const ExpertFiles& files, IoMode mode, std::unique_ptr<Reader> reader);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  /// Queues the reads of one expert into a slot's memory, to be started by the next poll(). The slot is named
  /// by the arrival; it must have no other read.
  void read(ExpertKey key, const Placement& placement, std::byte* memory, int32_t slot);

  /// Starts what is queued and appends experts that arrived, in order of arrival. With `wait`, blocks until
  /// there is one, if any is on its way.
  void poll(bool wait, std::vector<Arrival>& arrivals);

  /// Experts on their way.
  int pending() const { return pending_; }
  /// True when another expert's reads could start at once.
  bool has_room() const { return in_flight_ + static_cast<int>(queue_.size()) < kReadDepth; }
  uint64_t bytes_read() const { return bytes_read_; }
  IoMode mode() const { return shards_.mode(); }
  std::string_view reader_name() const { return reader_->name(); }

 private:
  struct Load {
    ExpertKey key;
    int32_t slot = -1;
    int chunks = 0;  ///< not finished
    uint32_t shards[3] = {};
    int n_shards = 0;
    std::string error;
  };
  struct Chunk {
    size_t load = 0;
    uint32_t shard = 0;
    uint64_t offset = 0;
    std::byte* into = nullptr;
    size_t bytes = 0;   ///< to ask for
    size_t needed = 0;  ///< of them: direct reads are rounded up, perhaps past the file's end
    int fruitless = 0;  ///< attempts in a row that brought nothing
  };

  void submit_queued();
  void handle(const ReadCompletion& completion, std::vector<Arrival>& arrivals);
  /// Takes one attempt's outcome into account: true when the chunk needs another; otherwise it is complete,
  /// or its load's error is set.
  bool needs_another(Chunk& chunk, int64_t result);
  void finish_chunk(size_t chunk, std::vector<Arrival>& arrivals);
  void set_error(Load& load, uint32_t shard, uint64_t offset, std::string_view reason);

  Shards shards_;
  std::unique_ptr<Reader> reader_;
  std::vector<Load> loads_;
  std::vector<size_t> free_loads_;
  std::vector<Chunk> chunks_;  ///< a chunk's index is its request's tag
  std::vector<size_t> free_chunks_;
  std::deque<size_t> queue_;  ///< chunks to submit
  int pending_ = 0;
  int in_flight_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace redlite::experts
