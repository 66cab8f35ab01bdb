#include "experts/io_mode.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned.h"
#include "experts/layout.h"
#include "experts/store.h"

namespace redlite::experts {
namespace {

constexpr size_t kLeastBytes = size_t{4} << 20;  ///< to be timed at once

using OpenReader = std::function<std::unique_ptr<Reader>()>;

/// Bytes a second of random experts; 0 if one cannot be read.
double read_rate_once(const ExpertFiles& files, IoMode mode, const OpenReader& open_reader,
                      std::mt19937& random) {
  // Of small experts more, for otherwise too little is timed.
  constexpr size_t kExperts = 16, kMostBytes = size_t{32} << 20;
  std::vector<ExpertKey> keys;
  std::vector<Placement> placements;
  size_t bytes = 0;
  while (keys.empty() || bytes < kLeastBytes || (keys.size() < kExperts && bytes < kMostBytes)) {
    const ExpertKey key{static_cast<int32_t>(random() % files.layers.size()),
                        static_cast<int32_t>(random() % static_cast<uint32_t>(files.n_experts))};
    keys.push_back(key);
    placements.push_back(place(files.layers[static_cast<size_t>(key.layer)], key.expert));
    bytes += placements.back().slot_bytes;
  }
  AlignedBuffer<std::byte> memory(bytes, kIoAlignment);
  std::memset(memory.data(), 0, bytes);  // the first touch of memory is not the disk's time
  ExpertStore store(files, mode, open_reader());
  std::vector<Arrival> arrivals;
  store.read(keys[0], placements[0], memory.data(), 0);  // a reader's first read may take longer
  while (store.pending() > 0) store.poll(true, arrivals);
  const auto together = static_cast<size_t>(std::max(files.n_experts_used / 4, 1));
  const auto start = std::chrono::steady_clock::now();
  std::byte* slot = memory.data();
  for (size_t i = 0; i < keys.size(); ++i) {
    store.read(keys[i], placements[i], slot, static_cast<int32_t>(i));
    slot += placements[i].slot_bytes;
    if ((i + 1) % together == 0 || i + 1 == keys.size())
      while (store.pending() > 0) store.poll(true, arrivals);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool failed =
      std::any_of(arrivals.begin(), arrivals.end(), [](const Arrival& a) { return !a.error.empty(); });
  return failed ? 0 : static_cast<double>(bytes) / seconds;
}

/// The best of three: each takes a few milliseconds, in which another program may have had the processor.
/// A small model's experts are all in the page cache after some tokens, so they are read until nearly all
/// are.
double read_rate(const ExpertFiles& files, IoMode mode, const OpenReader& open_reader, std::mt19937& random) {
  constexpr uint64_t kSmall = uint64_t{64} << 20;
  const uint64_t all = mode == IoMode::Buffered ? files.expert_bytes() : 0;
  const uint64_t times = std::max<uint64_t>(3, all <= kSmall ? 3 * all / kLeastBytes : 0);
  double best = 0;
  for (uint64_t i = 0; i < times; ++i)
    best = std::max(best, read_rate_once(files, mode, open_reader, random));
  return best;
}

}  // namespace

std::string_view io_mode_name(IoMode mode) {
  switch (mode) {
    case IoMode::Auto:
      return "auto";
    case IoMode::Direct:
      return "direct";
    case IoMode::Buffered:
      return "buffered";
  }
  return "?";
}

IoMode better_io_mode(double direct, double buffered) {
  return direct == 0 || buffered >= 3 * direct ? IoMode::Buffered : IoMode::Direct;
}

IoChoice choose_io_mode(const ExpertFiles& files, const OpenReader& open_reader) {
  // Others at every start: those read last time are in the page cache and say nothing of the rest.
  std::mt19937 random(std::random_device{}());
  IoChoice choice;
  choice.buffered = read_rate(files, IoMode::Buffered, open_reader, random);
  if (Shards::can_read_directly(files)) choice.direct = read_rate(files, IoMode::Direct, open_reader, random);
  choice.mode = better_io_mode(choice.direct, choice.buffered);
  return choice;
}

}  // namespace redlite::experts
