#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/model_choice.h"
#include "cpu/kernels.h"
#include "cpu/thread_pool.h"
#include "experts/reader.h"
#include "gpu/device.h"
#include "machine/describe.h"
#include "machine/disk.h"
#include "machine/memory_bandwidth.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

enum class Health : uint8_t { Ok, Better, Problem };

/// What was found about one thing, and what to do about it if not all is well.
struct Finding {
  std::string what;
  Health health = Health::Ok;
  std::string found;
  std::string advice = {};
};

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (uint64_t{1} << 30);
}

Finding check_processor() {
  const machine::Machine machine = machine::describe();
  const std::vector<std::string_view> kernels = cpu::available_kernels();
  Finding finding{"processor", Health::Ok,
                  fmt::format("{}; kernels {}", machine.processor, fmt::join(kernels, ", "))};
  if (kernels.size() == 1) {
    finding.health = Health::Better;
    finding.advice = "no vector kernels for it: expect a fraction of the speed; AVX2 or better is wanted";
  }
  return finding;
}

Finding check_cores() {
  const int online = machine::describe().cores, usable = cpu::available_threads();
  Finding finding{"cores", Health::Ok, fmt::format("{} of {} may be used", usable, online)};
  if (usable < online) {
    finding.health = Health::Better;
    finding.advice = "an affinity mask or a CPU quota of the control group withholds the others";
  }
  return finding;
}

Finding check_memory() {
  constexpr uint64_t kLittle = uint64_t{1} << 30;
  const uint64_t available = available_memory();
  Finding finding{
      "memory", Health::Ok,
      fmt::format("{:.1f} GiB free of {:.1f}", gib(available), gib(machine::describe().memory_bytes))};
  if (available < kLittle) {
    finding.health = Health::Problem;
    finding.advice = "end other programs: a large model's dense weights and states take more than that";
  }
  return finding;
}

Finding check_memory_limit() {
  const std::optional<uint64_t> limit = memory_limit();
  if (!limit) return {"memory limit", Health::Ok, "none"};
  Finding finding{"memory limit", Health::Ok, fmt::format("{:.1f} GiB, from the control group", gib(*limit))};
  if (*limit < machine::describe().memory_bytes / 2) {
    finding.health = Health::Better;
    finding.advice =
        "--cache-mib auto keeps to it; a higher limit (docker run --memory, MemoryMax=) holds more experts";
  }
  return finding;
}

Finding check_bandwidth() {
  const int threads = cpu::available_threads();
  try {
    const double speed = machine::memory_bandwidth(threads, /*passes=*/4, size_t{512} << 20);
    return {"memory speed", Health::Ok,
            fmt::format("{:.1f} GB/s with {} thread{}", speed / 1e9, threads, threads == 1 ? "" : "s")};
  } catch (const Error& e) {
    return {"memory speed", Health::Better, "not measured", e.what()};
  }
}

Finding check_huge_pages() {
  if (huge_pages_available()) return {"huge pages", Health::Ok, "given to those who ask"};
  return {"huge pages", Health::Better, "none",
          "weights stream up to twice as fast: echo madvise | sudo tee "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding check_uring() {
  if (experts::make_uring_reader() != nullptr) return {"io_uring", Health::Ok, "works"};
  return {"io_uring", Health::Better, "not available; threads read instead",
          "in a container allow it (docker run --security-opt seccomp=unconfined); elsewhere see sysctl "
          "kernel.io_uring_disabled"};
}

/// Random reads of the size that experts have, from the file that matters.
Finding check_disk(const std::string& path, bool bundled) {
  constexpr double kSlow = 1e9;
  try {
    const machine::DiskSpeed speed = machine::random_read_speed(path, 256 << 10, 32, /*seconds=*/0.3);
    Finding finding{"disk", Health::Ok,
                    fmt::format("{:.2f} GB/s in random {} reads by {}{}", speed.bytes_per_second / 1e9,
                                speed.direct ? "direct" : "buffered", speed.reader,
                                bundled ? " of the bundled model" : fmt::format(" of {}", path))};
    if (!speed.direct) {
      finding.health = Health::Better;
      finding.advice = "this file system has no direct reads: keep models on ext4 or XFS";
    } else if (speed.bytes_per_second < kSlow) {
      finding.health = Health::Better;
      finding.advice =
          "slow for a cache of experts: keep models on an NVMe disk, or give --cache-mib more memory";
    }
    return finding;
  } catch (const Error& e) {
    return {"disk", Health::Problem, "cannot be measured", e.what()};
  }
}

Finding check_gpu() {
  const bool driver = std::filesystem::exists("/proc/driver/nvidia/version");
  if (!gpu::built_with_cuda()) {
    if (!driver) return {"GPU", Health::Ok, "none, and this build uses none"};
    return {"GPU", Health::Better, "there is an NVIDIA driver, but this build uses no GPU",
            "build with cmake -DREDLITE_CUDA=ON (docs/gpu.md)"};
  }
  try {
    const auto device = gpu::open_cuda();
    return {"GPU", Health::Ok,
            fmt::format("{}, {:.1f} GiB free of {:.1f}", device->info().name, gib(device->free_memory()),
                        gib(device->info().total_memory))};
  } catch (const Error& e) {
    if (!driver) return {"GPU", Health::Ok, "none"};
    return {"GPU", Health::Problem, "cannot be used", e.what()};
  }
}

std::vector<Finding> check_models(const std::vector<std::string>& files, std::string& largest) {
  if (files.empty()) {
    return {{"models", Health::Ok, "none in " + models_folder(),
             "put GGUF files there; without any, the bundled one is run"}};
  }
  std::vector<Finding> findings;
  uint64_t most = 0;
  for (const std::string& path : files) {
    try {
      const model::Model model(path);
      const uint64_t bytes = model.dense_bytes() + model.expert_bytes();
      findings.push_back({"model", Health::Ok, fmt::format("{}: {:.1f} GiB", path, gib(bytes))});
      if (bytes > most) most = bytes, largest = path;
    } catch (const Error& e) {
      findings.push_back({"model", Health::Problem, "cannot be used", e.what()});
    }
  }
  return findings;
}

std::string_view health_name(Health health) {
  return health == Health::Ok ? "ok" : health == Health::Better ? "could be better" : "problem";
}

void run_doctor(const std::vector<std::string>& named, bool json) {
  const std::vector<std::string> files = named.empty() ? model_files(user_file("models")) : named;
  std::vector<Finding> findings = {check_processor(),    check_cores(),     check_memory(),
                                   check_memory_limit(), check_bandwidth(), check_huge_pages(),
                                   check_uring()};
  std::string largest;  // is what the disk is for
  const std::vector<Finding> models = check_models(files, largest);
  if (!largest.empty()) {
    findings.push_back(check_disk(largest, false));
  } else if (const auto demo = demo_model()) {
    findings.push_back(check_disk(*demo, true));
  }
  findings.push_back(check_gpu());
  findings.insert(findings.end(), models.begin(), models.end());

  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int problems = 0;
  for (const Finding& f : findings) {
    problems += f.health == Health::Problem ? 1 : 0;
    list.push_back(
        {{"what", f.what}, {"health", health_name(f.health)}, {"found", f.found}, {"advice", f.advice}});
    if (json) continue;
    fmt::print("{:<13} {:<16} {}\n", f.what, health_name(f.health), one_line(f.found));
    if (!f.advice.empty()) fmt::print("{:<13} {:<16} -> {}\n", "", "", one_line(f.advice));
  }
  if (json) fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  if (problems > 0) fail("{} problem{} found", problems, problems == 1 ? "" : "s");
}

}  // namespace

void add_doctor(CLI::App& app) {
  struct Options {
    std::vector<std::string> models;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("doctor", "Check what this machine has and what would make it faster");
  command->add_option("models", options->models, "the models to look at; default: those in ~/.redlite/models")
      ->type_name("MODEL");
  command->add_flag("--json", options->json, "print it as JSON");
  command->callback([options] { run_doctor(options->models, options->json); });
}

}  // namespace redlite::cli
