#include "experts/io_mode.h"

#include <sys/mman.h>
#include <unistd.h>

#include "experts/layout.h"
#include "experts/shards.h"

namespace redlite::experts {

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

double page_cache_share(const ExpertFiles& files) {
  // Of a file that is not ours to write the system tells nothing: it says that every page is there.
  for (const MappedFile* shard : files.shards) {
    if (::access(shard->file().path().c_str(), W_OK) != 0) return 0;
  }
  constexpr int kSamplesPerLayer = 32;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  int samples = 0;
  int present = 0;
  for (int layer = 0; layer < static_cast<int>(files.layers.size()); ++layer) {
    for (int i = 0; i < kSamplesPerLayer; ++i) {
      const int expert = i * files.n_experts / kSamplesPerLayer;
      const model::Matrix down = files.mapped(layer, expert).down;
      const std::byte* middle = down.data + down.bytes() / 2;
      // mincore() wants the page's start.
      std::byte* start = const_cast<std::byte*>(middle) - reinterpret_cast<uintptr_t>(middle) % page;
      unsigned char in_core = 0;
#ifdef __APPLE__
      const int rc = ::mincore(start, page, reinterpret_cast<char*>(&in_core));
#else
      const int rc = ::mincore(start, page, &in_core);
#endif
      if (rc != 0) continue;
      ++samples;
      present += in_core & 1;
    }
  }
  return samples == 0 ? 0 : static_cast<double>(present) / samples;
}

IoMode choose_io_mode(const ExpertFiles& files) {
  if (page_cache_share(files) >= 0.5 || !Shards::can_read_directly(files)) return IoMode::Buffered;
  return IoMode::Direct;
}

}  // namespace redlite::experts
