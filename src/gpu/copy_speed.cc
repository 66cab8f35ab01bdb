#include "gpu/copy_speed.h"

#include <algorithm>

namespace redlite::gpu {

double copy_speed(Device& device, Stream& stream, void* to, const void* from, size_t bytes) {
  const auto start = device.create_event(), end = device.create_event();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    stream.record(*start);
    stream.copy(to, from, bytes);
    stream.record(*end);
    stream.synchronize();
    best = std::max(best, static_cast<double>(bytes) / (end->milliseconds_since(*start) / 1000));
  }
  return best;
}

double memory_bandwidth(Device& device) {
  const size_t bytes = std::min(size_t{512} << 20, device.free_memory() / 8);
  const Buffer a = device.allocate(bytes, "a measurement"), b = device.allocate(bytes, "a measurement");
  const auto stream = device.create_stream();
  stream->fill(a.as(), 0, bytes);
  return 2 * copy_speed(device, *stream, b.as(), a.as(), bytes);
}

}  // namespace redlite::gpu
