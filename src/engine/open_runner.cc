#include "engine/open_runner.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/memory.h"
#include "experts/cache.h"
#include "gpu/gpu_runner.h"
#include "reference/reference_runner.h"

namespace redlite::engine {
namespace {

uint64_t to_mib(uint64_t bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

experts::IoMode io_mode(std::string_view name) {
  if (name == "direct") return experts::IoMode::Direct;
  if (name == "buffered") return experts::IoMode::Buffered;
  return experts::IoMode::Auto;
}

/// A switch of the environment: off when it is "0".
bool environment_switch(const char* name, bool otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? otherwise : std::string_view(value) != "0";
}

gpu::ExpertChoice choose_experts(const RunnerOptions& options) {
  gpu::ExpertChoice choice;
  if (options.residency == "full") choice.residency = gpu::Residency::full;
  if (options.residency == "device") choice.residency = gpu::Residency::device;
  if (options.residency == "host") choice.residency = gpu::Residency::host;
  if (options.cache_mib == "full") {
    choice.cache_bytes = UINT64_MAX;
  } else if (options.cache_mib != "auto") {
    choice.cache_bytes = std::stoull(options.cache_mib) * kMiB;
  }
  if (options.host_cache_mib == "full") {
    choice.host_tier = experts::CacheSize{};
  } else if (options.host_cache_mib != "auto") {
    choice.host_tier = {experts::CacheSize::Kind::Bounded, std::stoull(options.host_cache_mib) * kMiB};
  }
  choice.host.io = io_mode(options.io);
  choice.host.prefetch = environment_switch("RL_ENGINE_PREFETCH", options.prefetch == "on");
  choice.host.decode = options.decode == "routed" ? gpu::DecodeMode::routed
                       : options.decode == "sync" ? gpu::DecodeMode::sync
                                                  : gpu::DecodeMode::automatic;
  if (options.lookahead != "auto") choice.host.lookahead = std::stoi(options.lookahead);
  return choice;
}

void open_gpu(const model::Model& model, const RunnerOptions& options, int context, OpenRunner& open) {
  gpu::GpuOptions gpu;
  gpu.context = context;
  gpu.batch = std::min(options.batch, gpu.batch);
  gpu.half_kv = options.kv == "f16";
  gpu.experts = choose_experts(options);
  gpu.concurrent = environment_switch("RL_ENGINE_CONCURRENT", true);
  gpu.profile = environment_switch("RL_ENGINE_PROFILE", false);
  auto device =
      options.backend == "cuda" ? gpu::open_cuda() : gpu::open_emulator({.threads = options.threads});
  auto runner = std::make_unique<gpu::GpuRunner>(model, std::move(device), gpu);
  open.gpu = runner.get();
  open.cache_description = runner->description();
  open.runner = std::move(runner);
}

}  // namespace

OpenRunner open_runner(const model::Model& model, const RunnerOptions& options, int context) {
  OpenRunner open;
  if (options.backend == "reference") {
    open.runner = std::make_unique<reference::ReferenceRunner>(model, context);
    return open;
  }

  if (options.backend == "cuda" || options.backend == "emulator") {
    open_gpu(model, options, context, open);
    return open;
  }

  cpu::CpuOptions cpu;
  cpu.context = context;
  cpu.batch = options.batch;
  cpu.threads = options.threads;
  cpu.kv = options.kv == "f16" ? cpu::KvType::F16 : cpu::KvType::F32;
  cpu.kernels = options.kernels;
  cpu.cache.prefetch = options.prefetch == "on";
  cpu.cache.io = io_mode(options.io);
  cpu.cache.size.kind = experts::CacheSize::Kind::Bounded;  // which takes more besides, until it is known
  const cpu::CpuRunner::Memory needed = cpu::CpuRunner::memory_needed(model, cpu);
  open.budget.dense = needed.dense;
  open.budget.state = needed.state;
  open.budget.scratch = needed.scratch;

  const uint64_t full = experts::ExpertCache::full_bytes(model);
  if (options.cache_mib == "auto") {
    cpu.cache.size = experts::ExpertCache::auto_size(model, open.budget.total());
  } else if (options.cache_mib == "full") {
    cpu.cache.size = {};
  } else {
    cpu.cache.size = {experts::CacheSize::Kind::Bounded, std::stoull(options.cache_mib) * kMiB};
    if (cpu.cache.size.bytes >= full) cpu.cache.size = {};
  }
  const bool bounded = cpu.cache.size.kind == experts::CacheSize::Kind::Bounded;
  open.budget.scratch = cpu::CpuRunner::memory_needed(model, cpu).scratch;
  open.budget.cache = bounded ? cpu.cache.size.bytes : full;
  open.cache_description = bounded ? fmt::format("{} MiB of {}", to_mib(cpu.cache.size.bytes), to_mib(full))
                                   : fmt::format("all {} MiB of experts", to_mib(full));
  if (options.cache_mib == "auto")
    open.cache_description += fmt::format(", chosen with {} MiB of memory free", to_mib(available_memory()));

  auto runner = std::make_unique<cpu::CpuRunner>(model, cpu);
  open.cpu = runner.get();
  if (bounded) open.cache_description += ", " + runner->cache_io();
  open.runner = std::move(runner);
  return open;
}

}  // namespace redlite::engine
