// Products of every type in every instruction set: GB/s of weights, GMAC/s, and what fraction that is of the
// floor, which is what the same threads read from memory when they do nothing else. Benchmarks are named
//     decode/ISA/TYPE/threads:N     one token, weights streamed from memory (2 MiB pages where the system has
//     them) cached/ISA/TYPE/threads:1     one token, weights in the second-level cache
//     prefill/ISA/TYPE/TOKENS/...   weights from memory, each read once for 16, 64 or 512 tokens
//     attend/ISA/f16/threads:N      decode attention as in the 80B: keys and values streamed from memory
//
//   kernels_bench --benchmark_filter='decode/avx512_dl/.*'
//   kernels_bench --benchmark_filter='prefill/.*/64/' --benchmark_format=json
//
// REDLITE_BENCH_MIB is the size of the weights streamed in decode (default 1024; more than all caches
// together). REDLITE_BENCH_THREADS is how many threads share them (default: the processor's).
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned.h"
#include "cpu/kernels.h"
#include "cpu/mixer_kernels.h"
#include "machine/memory_bandwidth.h"
#include "quant/random_blocks.h"
#include "quant/type.h"

namespace redlite::cpu {
namespace {

constexpr int kCols = 2048;
constexpr size_t kHugePage = size_t{2} << 20;
/// Weights that fit the second-level cache.
constexpr size_t kCachedBytes = size_t{512} << 10;
/// Multiply-adds of one pass in prefill.
constexpr size_t kPrefillWork = size_t{2} << 30;

int environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}
size_t memory_bytes() {
  static const auto mib = static_cast<size_t>(std::max(1, environment("REDLITE_BENCH_MIB", 1024)));
  return mib << 20;
}
int n_threads() {
  static const int n = std::max(
      1, environment("REDLITE_BENCH_THREADS", static_cast<int>(std::thread::hardware_concurrency())));
  return n;
}

/// The memory that all benchmarks use in turn, in large pages.
std::byte* memory() {
  static AlignedBuffer<std::byte> buffer = [] {
    AlignedBuffer<std::byte> out((memory_bytes() + kHugePage) / kHugePage * kHugePage, kHugePage);
    madvise(out.data(), out.size(), MADV_HUGEPAGE);
    return out;
  }();
  return buffer.data();
}

/// The first `bytes` of memory() or a little less as a matrix, whose rows repeat after 512.
model::Matrix weights(quant::Type type, size_t bytes) {
  std::mt19937 random(1);
  const size_t row_bytes = quant::row_bytes(type, kCols);
  const int rows = static_cast<int>(bytes / row_bytes);
  const std::vector<std::byte> some = quant::random_blocks(
      type, static_cast<size_t>(std::min(rows, 512)) * row_bytes / quant::info(type).block_bytes, random);
  const size_t size = static_cast<size_t>(rows) * row_bytes;
  for (size_t at = 0; at < size; at += some.size()) {
    std::memcpy(memory() + at, some.data(), std::min(some.size(), size - at));
  }
  return {memory(), type, rows, kCols};
}

Activations activations(const Kernels& kernels, int tokens) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(tokens) * kCols);
  for (float& v : x) v = normal(random);
  Activations out(tokens, kCols);
  out.resize(tokens, kCols);
  kernels.quantize(x.data(), kCols, 0, tokens, out);
  return out;
}

/// Bytes a second that so many threads read together.
double floor_bandwidth(int threads) {
  static const double one = machine::memory_bandwidth(1);
  static const double all = n_threads() == 1 ? one : machine::memory_bandwidth(n_threads());
  return threads == 1 ? one : all;
}

void multiply(benchmark::State& state, const Kernels& kernels, quant::Type type, size_t bytes, int tokens) {
  static model::Matrix w;
  static Activations x;
  static std::vector<float> y;
  static double floor;
  const int threads = state.threads();
  if (state.thread_index() == 0) {
    floor = floor_bandwidth(threads);
    w = weights(type, bytes);
    x = activations(kernels, tokens);
    y.assign(static_cast<size_t>(w.rows) * static_cast<size_t>(tokens), 0.0f);
  }
  const int rows = w.rows / threads;
  for (auto _ : state) {  // the threads wait for each other here
    const int first = rows * state.thread_index();
    kernels.multiply(w, first, first + rows, x, 0, tokens, y.data(), static_cast<size_t>(w.rows));
    benchmark::ClobberMemory();
  }
  const double passes = static_cast<double>(state.iterations()) * rows;  // over a row
  const double read = passes * static_cast<double>(w.row_bytes());
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(read / 1e9, Counter::kIsRate);
  state.counters["GMAC/s"] = Counter(passes * kCols * tokens / 1e9, Counter::kIsRate);
  if (state.thread_index() == 0) state.counters["floor_GB/s"] = floor / 1e9;
  state.counters["of_floor"] = Counter(read / floor, Counter::kIsRate);
}

/// Eight query heads on keys and values of 256 values, positions in blocks as the runner divides them.
void attend(benchmark::State& state, const MixerKernels& mixers) {
  constexpr int kGroup = 8, kDim = 256;
  constexpr size_t kBlockBytes = size_t{kAttendBlock} * kDim * sizeof(uint16_t);
  static double floor;
  static AlignedBuffer<float> q(kGroup * kDim);
  static size_t blocks;
  if (state.thread_index() == 0) {
    floor = floor_bandwidth(state.threads());
    blocks = std::min(memory_bytes(), size_t{512} << 20) / (2 * kBlockBytes);
    std::ranges::fill(q.span(), 0.01f);
    auto* values = reinterpret_cast<uint16_t*>(memory());
    for (size_t i = 0; i < blocks * kBlockBytes; ++i)  // from 0.5 to 1
      values[i] = static_cast<uint16_t>(0x3800 | (i * 997 & 0x3ff));
  }
  float max[kGroup], sum[kGroup];
  AlignedBuffer<float> o(kGroup * kDim);
  const size_t share = blocks / static_cast<size_t>(state.threads());
  const size_t first = share * static_cast<size_t>(state.thread_index());
  size_t done = 0;
  for (auto _ : state) {
    for (size_t block = first; block < first + share; ++block, ++done) {
      const std::byte* k = memory() + block * kBlockBytes;
      mixers.attend({q.data(), kDim, kGroup, kDim, k, k + blocks * kBlockBytes, true, kAttendBlock},
                    {max, sum, o.data()});
    }
    benchmark::ClobberMemory();
  }
  const double read = 2.0 * static_cast<double>(done * kBlockBytes);
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(read / 1e9, Counter::kIsRate);
  if (state.thread_index() == 0) state.counters["floor_GB/s"] = floor / 1e9;
  state.counters["of_floor"] = Counter(read / floor, Counter::kIsRate);
}

void register_all() {
  for (const std::string_view isa : available_kernels()) {
    if (const MixerKernels* mixers = find_mixer_kernels(isa)) {
      for (const int threads : {1, n_threads()}) {
        benchmark::RegisterBenchmark(fmt::format("attend/{}/f16", isa).c_str(),
                                     [mixers](benchmark::State& s) { attend(s, *mixers); })
            ->Unit(benchmark::kMillisecond)
            ->Threads(threads)
            ->UseRealTime();
      }
    }
    const Kernels& kernels = *find_kernels(isa);
    for (const quant::TypeInfo& type : quant::all_types()) {
      const auto add = [&](std::string_view kind, size_t bytes, int tokens, int threads) {
        std::string name = fmt::format("{}/{}/{}", kind, isa, type.name);
        if (tokens > 1) name += fmt::format("/{}", tokens);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&kernels, type, bytes, tokens](benchmark::State& s) {
                                       multiply(s, kernels, type.type, bytes, tokens);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->Threads(threads)
            ->UseRealTime();
      };
      add("decode", memory_bytes(), 1, 1);
      if (n_threads() > 1) add("decode", memory_bytes(), 1, n_threads());
      add("cached", kCachedBytes, 1, 1);
      for (const size_t tokens : {2, 4, 16, 64, 512}) {
        const size_t rows = kPrefillWork / kCols / tokens;
        add("prefill", std::min(memory_bytes(), rows * quant::row_bytes(type.type, kCols)),
            static_cast<int>(tokens), 1);
      }
    }
  }
}

}  // namespace
}  // namespace redlite::cpu

int main(int argc, char** argv) {
  redlite::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
