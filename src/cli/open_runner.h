#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/options.h"
#include "cpu/cpu_runner.h"
#include "gpu/gpu_runner.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::cli {

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

}  // namespace redlite::cli
