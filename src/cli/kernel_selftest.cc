#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "gpu/device.h"
#include "gpu/selftest/selftest.h"
#include "gpu/selftest/timing.h"

namespace redlite::cli {
namespace {

struct Options {
  std::string backend = "emulator";
  std::string filter;
  uint64_t seed = 0;
  int threads = 0;
  bool time = false;
};

void run(const Options& options) {
  const uint64_t seed = options.seed != 0 ? options.seed : std::random_device{}() | 1;
  const std::unique_ptr<gpu::Device> device =
      options.backend == "cuda" ? gpu::open_cuda()
                                : gpu::open_emulator({.seed = seed, .threads = options.threads});
  fmt::print("kernels on {}, seed {}\n", device->info().name, seed);
  int groups = 0, cases = 0;
  const int failures =
      gpu::kernel_selftest(*device, seed, options.filter, [&](const gpu::SelftestLine& line) {
        ++groups;
        cases += line.cases;
        fmt::print(
            "{:<28} {:>4} cases  error/bound {:5.3f}  {}\n", line.name, line.cases, line.worst,
            line.failures == 0 ? "ok" : fmt::format("{} FAILED: {}", line.failures, line.first_failure));
        std::fflush(stdout);
      });
  if (groups == 0 && !options.time) fail("no kernel's name contains '{}'", options.filter);
  if (failures > 0) fail("{} of {} cases failed; --seed {} repeats them", failures, cases, seed);
  fmt::print("{} cases of {} groups passed\n", cases, groups);
  if (!options.time) return;
  gpu::time_kernels(*device, options.filter, [](const gpu::TimingLine& line) {
    fmt::print("{:<36} {:>8.2f} us {:>8.1f} GB/s\n", line.name, line.microseconds, line.gb_per_second);
    std::fflush(stdout);
  });
}

}  // namespace

void add_kernel_selftest(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "kernel-selftest", "Compare every GPU kernel with double-precision mathematics on random inputs");
  command->add_option("--backend", options->backend, "cuda, or emulator (needs no GPU)")
      ->check(CLI::IsMember({"cuda", "emulator"}))
      ->capture_default_str();
  command->add_option("--filter", options->filter,
                      "Only kernels whose name contains this, e.g. \"project Q4_K\"");
  command->add_option("--seed", options->seed, "Of the inputs and of the emulator's order; 0: a fresh one");
  command->add_option("--threads", options->threads, "Of the emulator; 0: one for each core")
      ->check(in_range(0, 1024));
  command->add_flag("--time", options->time, "Then time the kernels, as links of a graph of 64");
  command->callback([options] { run(*options); });
}

}  // namespace redlite::cli
