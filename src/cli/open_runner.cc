#include "cli/open_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "experts/cache.h"
#include "gpu/gpu_runner.h"
#include "reference/reference_runner.h"

namespace redlite::cli {
namespace {

uint64_t to_mib(uint64_t bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

experts::IoMode io_mode(std::string_view name) {
  if (name == "direct") return experts::IoMode::Direct;
  if (name == "buffered") return experts::IoMode::Buffered;
  return experts::IoMode::Auto;
}

/// Where the GPU's experts are to live: as asked for, else all of them on the device if they fit there with
/// the dense weights, what a sequence needs, and a reserve; else a cache that leaves these.
gpu::ExpertPlacement place_experts(const model::Model& model, const RunnerOptions& options,
                                   const gpu::Device& device, std::string& description) {
  constexpr uint64_t kReserve = 1024 * kMiB;
  const uint64_t all = gpu::DeviceModel::expert_bytes(model);
  const uint64_t free = device.free_memory(), other = model.dense_bytes() + kReserve;
  uint64_t cache = all;
  if (options.cache_mib == "auto") {
    if (options.residency != "full" && free < other + all) cache = free > other ? free - other : 0;
  } else if (options.cache_mib != "full") {
    cache = std::min<uint64_t>(all, std::stoull(options.cache_mib) * kMiB);
    if (options.residency == "full" && cache < all)
      fail("--residency full needs all {} MiB of experts on the GPU: leave --cache-mib out", to_mib(all));
  }
  const bool full = options.residency == "full" || (options.residency == "auto" && cache == all);
  description = full ? fmt::format("all {} MiB of experts on the GPU", to_mib(all))
                     : fmt::format("{} MiB of {} on the GPU, which fills it from host memory", to_mib(cache),
                                   to_mib(all));
  if (options.residency == "auto" && options.cache_mib == "auto")
    description += fmt::format(", chosen with {} MiB of its memory free", to_mib(free));
  return {full ? gpu::Residency::full : gpu::Residency::device, cache};
}

void open_gpu(const model::Model& model, const RunnerOptions& options, int context, OpenRunner& open) {
  gpu::GpuOptions gpu;
  gpu.context = context;
  gpu.batch = std::min(options.batch, gpu.batch);
  gpu.half_kv = options.kv == "f16";
  auto device =
      options.backend == "cuda" ? gpu::open_cuda() : gpu::open_emulator({.threads = options.threads});
  gpu.experts = place_experts(model, options, *device, open.cache_description);
  auto runner = std::make_unique<gpu::GpuRunner>(model, std::move(device), gpu);
  open.gpu = runner.get();
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

}  // namespace redlite::cli
