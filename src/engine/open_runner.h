#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cpu/cpu_runner.h"
#include "gpu/gpu_runner.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::engine {

/// What one may choose about how a model is run, as the command line names it.
struct RunnerOptions {
  std::string backend = "cpu";
  std::string cache_mib = "auto";       ///< a number of MiB, "full" or "auto"
  std::string residency = "auto";       ///< of the GPU's experts: "auto", "full", "device" or "host"
  std::string host_cache_mib = "auto";  ///< for residency "host": a number of MiB, "full" or "auto"
  std::string decode = "auto";          ///< ... "auto", "routed" or "sync"
  std::string lookahead = "auto";       ///< ... a number of layers or "auto"
  std::string prefetch = "on";
  std::string io = "auto";
  std::string kv = "f16";
  std::string kernels;  ///< instruction set; empty: the best one
  int context = 0;      ///< 0: what the prompt and -n need
  int batch = 2048;
  int threads = 0;  ///< 0: one for each core
};

/// What a run may take of the machine's memory, in bytes.
struct MemoryBudget {
  uint64_t cache = 0;    ///< routed experts
  uint64_t dense = 0;    ///< dense weights, mapped from the file
  uint64_t state = 0;    ///< K/V and DeltaNet states
  uint64_t scratch = 0;  ///< buffers of the forward pass
  /// The program itself, its libraries and tables.
  static constexpr uint64_t kProgram = uint64_t{200} << 20;

  uint64_t total() const { return cache + dense + state + scratch + kProgram; }
};

/// A runner made from the command line, with the memory it may take.
struct OpenRunner {
  std::unique_ptr<model::Runner> runner;
  cpu::CpuRunner* cpu = nullptr;  ///< the same runner if it is the CPU's, for its statistics
  gpu::GpuRunner* gpu = nullptr;  ///< ... or the GPU's
  MemoryBudget budget;            ///< CPU only
  std::string
      cache_description;  ///< "4096 MiB of 17316", with how it is read and the reasons of automatic choices
};

/// Opens the backend chosen in `options` for sequences of `context` tokens. Throws Error.
OpenRunner open_runner(const model::Model& model, const RunnerOptions& options, int context);

}  // namespace redlite::engine
