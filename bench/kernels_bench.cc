// Products of every type in every instruction set, as GB/s of weights and as a fraction of what one core
// reads from memory when it does nothing else.
//
//   kernels_bench                                             all
//   kernels_bench --benchmark_filter='decode/avx512_dl/.*'    one token, weights from memory
//   kernels_bench --benchmark_filter='cached/.*'              one token, weights from the second-level cache
//   kernels_bench --benchmark_filter='prefill/.*/64'          64 tokens
//
// REDLITE_BENCH_MIB is the size of the weights read from memory (default 1024; more than all caches
// together).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "cpu/kernels.h"
#include "quant/random_blocks.h"

namespace redlite::cpu {
namespace {

constexpr int kCols = 2048;

size_t memory_bytes() {
  const char* mib = std::getenv("REDLITE_BENCH_MIB");
  return static_cast<size_t>(mib != nullptr ? std::atoi(mib) : 1024) << 20;
}

/// Weights of `bytes` or a little less, whose rows repeat after 512.
AlignedBuffer<std::byte> weights(quant::Type type, size_t bytes, int& rows) {
  std::mt19937 random(1);
  const size_t row_bytes = quant::row_bytes(type, kCols);
  rows = static_cast<int>(bytes / row_bytes);
  const std::vector<std::byte> some = quant::random_blocks(
      type, static_cast<size_t>(std::min(rows, 512)) * row_bytes / quant::info(type).block_bytes, random);
  AlignedBuffer<std::byte> out(static_cast<size_t>(rows) * row_bytes, 4096);
  for (size_t at = 0; at < out.size(); at += some.size()) {
    std::memcpy(out.data() + at, some.data(), std::min(some.size(), out.size() - at));
  }
  return out;
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

/// Processor time of this thread: others' work on the machine counts less in it than in the clock's.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Bytes a second of a sum over the weights' memory: the best of a few passes, measured once.
double streaming_bandwidth() {
  static const double best = [] {
    int rows;
    const AlignedBuffer<std::byte> data = weights(quant::Type::F32, memory_bytes(), rows);
    const auto* words = reinterpret_cast<const uint64_t*>(data.data());
    const size_t n = data.size() / sizeof(uint64_t) / 32 * 32;
    double found = 0;
    for (int pass = 0; pass < 5; ++pass) {
      const double start = thread_seconds();
      uint64_t sums[32] = {};
      for (size_t i = 0; i < n; i += 32) {
        for (size_t k = 0; k < 32; ++k) sums[k] += words[i + k];
      }
      benchmark::DoNotOptimize(sums);
      const double seconds = thread_seconds() - start;
      found = std::max(found, static_cast<double>(n) * sizeof(uint64_t) / seconds);
    }
    return found;
  }();
  return best;
}

void multiply(benchmark::State& state, const Kernels& kernels, quant::Type type, size_t bytes, int tokens) {
  int rows;
  const AlignedBuffer<std::byte> data = weights(type, bytes, rows);
  const model::Matrix w{data.data(), type, rows, kCols};
  const Activations x = activations(kernels, tokens);
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(tokens));
  for (auto _ : state) {
    kernels.multiply(w, 0, rows, x, 0, tokens, y.data(), static_cast<size_t>(rows));
    benchmark::DoNotOptimize(y.data());
  }
  const double passes = static_cast<double>(state.iterations());
  const double read = static_cast<double>(data.size());
  state.counters["GB/s"] = benchmark::Counter(passes * read / 1e9, benchmark::Counter::kIsRate);
  if (tokens > 1) {
    state.counters["GMAC/s"] = benchmark::Counter(passes * static_cast<double>(rows) * kCols * tokens / 1e9,
                                                  benchmark::Counter::kIsRate);
  } else if (bytes == memory_bytes()) {
    state.counters["of_bandwidth"] =
        benchmark::Counter(passes * read / streaming_bandwidth(), benchmark::Counter::kIsRate);
  }
}

void register_all() {
  for (const std::string_view isa : available_kernels()) {
    const Kernels& kernels = *find_kernels(isa);
    for (const quant::TypeInfo& type : quant::all_types()) {
      const std::string name = std::string(isa) + "/" + std::string(type.name);
      const auto add = [&](const std::string& kind, size_t bytes, int tokens, const std::string& suffix) {
        benchmark::RegisterBenchmark((kind + name + suffix).c_str(), [&kernels, type, bytes,
                                                                      tokens](benchmark::State& s) {
          multiply(s, kernels, type.type, bytes, tokens);
        })->Unit(benchmark::kMillisecond);
      };
      add("decode/", memory_bytes(), 1, "");
      add("cached/", size_t{512} << 10, 1, "");
      add("prefill/", size_t{512} << 10, 4, "/4");
      add("prefill/", size_t{512} << 10, 64, "/64");
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
