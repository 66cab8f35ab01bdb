// How fast experts arrive: the expert cache's misses against plain random reads of the same file.
//
//   expert_reads [DIRECTORY [FILE_MIB [SECONDS]]]
//
// Writes a file of FILE_MIB (default 2048) into DIRECTORY (default .), drops it from the page cache, and
// measures for SECONDS (default 2) each: the bare reader at several block sizes and depths, then leases of 1
// to 64 missing experts of 672 KiB through ExpertCache, whose bytes are compared with the file's pattern.
// Prints GB/s and the fraction of the best bare rate.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/error.h"
#include "experts/cache.h"
#include "experts/layout.h"
#include "experts/reader.h"
#include "experts/shards.h"

namespace redlite::experts {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Word i of the file.
uint64_t pattern(uint64_t i) {
  return i * 0x9e3779b97f4a7c15u ^ i >> 7;
}

void write_pattern(const std::string& path, uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("{}: cannot create: {}", path, std::strerror(errno));
  std::vector<uint64_t> block(1 << 20);
  for (uint64_t done = 0; done < bytes; done += block.size() * 8) {
    for (size_t i = 0; i < block.size(); ++i) block[i] = pattern(done / 8 + i);
    if (::write(fd, block.data(), block.size() * 8) != static_cast<ssize_t>(block.size() * 8)) {
      fail("{}: cannot write: {}", path, std::strerror(errno));
    }
  }
  ::fsync(fd);
  ::close(fd);
}

void drop_from_page_cache(const MappedFile& file) {
#ifdef POSIX_FADV_DONTNEED
  ::posix_fadvise(file.file().descriptor(), 0, 0, POSIX_FADV_DONTNEED);
#endif
}

std::unique_ptr<Reader> make_reader(bool uring) {
  return uring ? make_uring_reader() : make_thread_reader();
}

/// Random aligned reads of one size, `depth` in flight. Bytes per second.
double bare_rate(const Shards& shards, Reader& reader, uint64_t file_bytes, size_t block, int depth,
                 double seconds) {
  AlignedBuffer<std::byte> memory(block * static_cast<size_t>(depth), kIoAlignment);
  std::mt19937_64 random(block);
  std::vector<ReadCompletion> completions(static_cast<size_t>(depth));
  uint64_t bytes = 0;
  const auto submit = [&](uint64_t tag) {
    const uint64_t offset = random() % (file_bytes / block) * block;
    reader.submit({shards.descriptor(0), offset, memory.data() + block * tag, block, tag});
  };
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < depth; ++i) submit(static_cast<uint64_t>(i));
  int in_flight = depth;
  while (in_flight > 0) {
    const size_t n = reader.complete(completions, true);
    const bool go_on = seconds_since(start) < seconds;
    for (size_t i = 0; i < n; ++i) {
      if (completions[i].result != static_cast<int64_t>(block)) fail("a read gave {}", completions[i].result);
      bytes += block;
      if (go_on) {
        submit(completions[i].tag);
      } else {
        --in_flight;
      }
    }
  }
  return static_cast<double>(bytes) / seconds_since(start);
}

/// The file as layers of 512 experts of three slices of 224 KiB each, 32 bytes off any page.
std::vector<model::ExpertLayer> layers_of(uint64_t file_bytes) {
  constexpr uint64_t kSlice = 224 << 10;
  std::vector<model::ExpertLayer> layers;
  for (uint64_t at = 32; at + 3 * 512 * kSlice <= file_bytes; at += 3 * 512 * kSlice) {
    model::ExpertLayer layer;
    uint64_t offset = at;
    for (model::ExpertTensor* t : {&layer.gate, &layer.up, &layer.down}) {
      *t = {quant::Type::F32, 56, 1024, 0, offset, kSlice, kSlice};
      offset += 512 * kSlice;
    }
    layers.push_back(layer);
  }
  return layers;
}

bool right(const MappedFile& file, const std::byte* mapped, const model::Matrix& m) {
  const auto offset = static_cast<uint64_t>(mapped - file.bytes().data());
  for (const uint64_t i : {uint64_t{0}, m.bytes() / 16, m.bytes() / 8 - 1}) {
    uint64_t word = 0;
    std::memcpy(&word, m.data + i * 8, 8);
    if (word != pattern(offset / 8 + i)) return false;
  }
  return true;
}

/// Leases of `n` experts that are never resident. Bytes of experts per second.
double lease_rate(const MappedFile& file, const ExpertFiles& files, IoMode io, bool uring, int n,
                  double seconds) {
  CacheOptions options;
  options.size = {CacheSize::Kind::Bounded, uint64_t{192} << 20};
  options.io = io;
  ExpertCache cache(files, options, make_reader(uring));
  const auto n_layers = static_cast<int>(files.layers.size());
  std::vector<int32_t> ids(512);
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 random(1);
  // Each layer is walked through in an order of its own, so that nothing is asked for twice before it was
  // evicted.
  const Clock::time_point start = Clock::now();
  for (int step = 0; seconds_since(start) < seconds; ++step) {
    const int layer = step % n_layers;
    if (layer == 0 && step / n_layers * n % 512 == 0) std::shuffle(ids.begin(), ids.end(), random);
    const auto at = static_cast<size_t>(step / n_layers * n % 512);
    const std::span<const int32_t> some =
        std::span<const int32_t>(ids).subspan(at, std::min<size_t>(n, 512 - at));
    ExpertCache::Lease lease = cache.acquire(layer, some);
    while (const std::optional<int> i = lease.next()) {
      const model::Model::Expert mapped = files.mapped(layer, some[static_cast<size_t>(*i)]);
      const model::Model::Expert& e = lease.expert(*i);
      if (!right(file, mapped.gate.data, e.gate) || !right(file, mapped.up.data, e.up) ||
          !right(file, mapped.down.data, e.down)) {
        fail("wrong bytes");
      }
    }
  }
  return static_cast<double>(cache.stats().misses * files.layers[0].triplet_bytes()) / seconds_since(start);
}

void run(const std::string& directory, uint64_t file_bytes, double seconds) {
  const std::string path = directory + "/expert_reads.tmp";
  fmt::print("writing {} MiB to {}\n", file_bytes >> 20, path);
  write_pattern(path, file_bytes);
  const MappedFile file(path);
  ::unlink(path.c_str());
  const std::vector<model::ExpertLayer> layers = layers_of(file_bytes);
  const ExpertFiles files{layers, 512, 10, {&file}};

  double best = 0;
  fmt::print("{:<28}{:>8}{:>8}{:>10}\n", "bare direct reads", "KiB", "depth", "GB/s");
  const Shards shards(files, IoMode::Direct);
  for (const bool uring : {true, false}) {
    const std::unique_ptr<Reader> reader = make_reader(uring);
    if (!reader) continue;
    for (const size_t kib : {64, 128, 256, 512, 1024}) {
      for (const int depth : {8, 32, 96}) {
        const double rate = bare_rate(shards, *reader, file_bytes, kib << 10, depth, seconds / 4);
        best = std::max(best, rate);
        fmt::print("{:<28}{:>8}{:>8}{:>10.2f}\n", reader->name(), kib, depth, rate / 1e9);
      }
    }
  }
  fmt::print("{:<28}{:>8}{:>18}{:>10}\n", "experts of 672 KiB", "lease", "GB/s", "of best");
  for (const IoMode io : {IoMode::Direct, IoMode::Buffered}) {
    for (const bool uring : {true, false}) {
      if (uring && !make_uring_reader()) continue;
      for (const int n : {1, 3, 10, 64}) {
        drop_from_page_cache(file);
        const double rate = lease_rate(file, files, io, uring, n, seconds);
        fmt::print("{:<28}{:>8}{:>18.2f}{:>9.0f}%\n",
                   fmt::format("{}, {}", io_mode_name(io), uring ? "io_uring" : "threads"), n, rate / 1e9,
                   100 * rate / best);
      }
    }
  }
}

}  // namespace
}  // namespace redlite::experts

int main(int argc, char** argv) {
  try {
    const std::string directory = argc > 1 ? argv[1] : ".";
    const uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2048;
    const double seconds = argc > 3 ? std::strtod(argv[3], nullptr) : 2;
    redlite::experts::run(directory, mib << 20, seconds);
  } catch (const redlite::Error& e) {
    fmt::print(stderr, "expert_reads: {}\n", e.what());
    return 1;
  }
}
