#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "model/model.h"

namespace redlite::cpu {

/// Brings mapped weights into memory and into huge pages, in the background: the dense ones, which every
/// token reads from end to end, then the experts if they are used where they are mapped.
///
/// A part of the file that the page cache holds in huge pages is used as it is. A cold part is read into them
/// (base/huge_pages.h's advice). A part that is cached in small pages (a file just written, or read by
/// others) is dropped from the page cache and read again; where that does not help, because the file system
/// cannot or the disk is slow, dense weights are copied to memory of our own if there is memory for it. Bytes
/// and addresses stay the same all the time, and other threads may read them.
class WeightPages {
 public:
  /// Starts at once. `experts`: they are used from the mapping; `room`: there is memory for all weights that
  /// are used so, and for the rest of the huge pages that dense weights begin and end in. Without it nothing
  /// is copied, and experts come into memory as they are used.
  WeightPages(const model::Model& model, bool experts, bool room);
  ~WeightPages();  ///< Stops where it is.
  WeightPages(const WeightPages&) = delete;
  WeightPages& operator=(const WeightPages&) = delete;

  /// Bytes so far, in whole huge pages.
  struct Report {
    uint64_t total = 0;       ///< to be brought into huge pages
    uint64_t seen = 0;        ///< looked at
    uint64_t huge = 0;        ///< of those, in huge pages of the page cache
    uint64_t read_again = 0;  ///< ... because they were read again
    uint64_t copied = 0;      ///< in huge pages of our own
  };
  Report report() const;
  void wait();  ///< until all was seen

 private:
  /// A huge page's worth of a mapped file.
  struct Block {
    const std::byte* data;
    int descriptor;
    uint64_t offset;
    bool dense;
  };
  static std::vector<Block> blocks_of(const model::Model& model, bool experts, bool room);
  void work();
  bool read_again(const Block& block);

  std::vector<Block> blocks_;
  bool room_;
  int failures_ = 0;  ///< of reading again, less the successes
  std::atomic<uint64_t> seen_{0}, huge_{0}, read_again_{0}, copied_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace redlite::cpu
