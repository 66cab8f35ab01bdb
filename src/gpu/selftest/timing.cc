#include "gpu/selftest/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "gpu/matrix.h"
#include "quant/random_blocks.h"

namespace redlite::gpu {
namespace {

constexpr int kLaunches = 64;  ///< in a graph
constexpr int kReplays = 9;
constexpr size_t kBeyondCaches = size_t{512} << 20;

/// Median milliseconds of a replay.
double time_graph(Device& device, Stream& stream, const Graph& graph) {
  const auto start = device.create_event(), end = device.create_event();
  std::vector<double> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    stream.record(*start);
    stream.replay(graph);
    stream.record(*end);
    stream.synchronize();
    if (i >= 2) times.push_back(end->milliseconds_since(*start));
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2];
}

TimingLine time_matvec(Device& device, Stream& stream, quant::Type type, int rows, int cols, size_t pool) {
  const size_t bytes = plane_bytes(type, rows, cols);
  const size_t copies = std::clamp<size_t>(pool / bytes, 1, kLaunches);
  std::mt19937 random(1);
  const size_t values = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  const std::vector<std::byte> blocks =
      quant::random_blocks(type, values / quant::info(type).block_values, random);
  std::vector<std::byte> planes(bytes);
  repack(type, rows, cols, blocks.data(), planes.data());
  const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
  const Buffer weights = device.allocate(copies * bytes, "matrices to time");
  const Buffer x = device.allocate(ones.size() * 4, "activations"),
               y = device.allocate(4ul * rows, "a result");
  const Buffer books = upload_codebooks(device, stream);
  stream.copy(x.as(), ones.data(), x.bytes());
  for (size_t i = 0; i < copies; ++i) stream.copy(weights.as() + i * bytes, planes.data(), bytes);
  stream.synchronize();
  stream.begin_capture();
  for (size_t i = 0; i < kLaunches; ++i) {
    matvec(stream, device.info(), type, plane_matrix(type, rows, cols, weights.as() + i % copies * bytes),
           {.x = x.as<float>(), .norm = x.as<float>(), .eps = 1e-6f, .books = books.as<Codebooks>()},
           y.as<float>(), true);
  }
  const auto graph = stream.end_capture();
  const double us = time_graph(device, stream, *graph) * 1e3 / kLaunches;
  return {fmt::format("matvec {} {} x {}", quant::name(type), rows, cols), us,
          static_cast<double>(bytes) / us * 1e-3};
}

}  // namespace

void time_kernels(Device& device, std::string_view filter,
                  const std::function<void(const TimingLine&)>& report) {
  const auto stream = device.create_stream();
  // Ten experts' gate and up, one such expert, their down, DeltaNet's input and output.
  constexpr struct {
    int rows, cols;
  } kShapes[] = {{10240, 2048}, {1024, 2048}, {20480, 512}, {12288, 2048}, {2048, 4096}};
  const size_t pool = std::min(kBeyondCaches, device.free_memory() / 4);
  for (const quant::TypeInfo& info : quant::all_types()) {
    for (const auto& [rows, cols] : kShapes) {
      if (fmt::format("matvec {}", info.name).find(filter) == std::string::npos) continue;
      report(time_matvec(device, *stream, info.type, rows, cols, pool));
    }
  }
}

}  // namespace redlite::gpu
