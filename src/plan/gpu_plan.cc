#include "plan/gpu_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "bench/counters.h"
#include "gpu/copy_speed.h"
#include "gpu/placement.h"
#include "plan/measure.h"

namespace redlite::plan {
namespace {

using gpu::Residency;

void look_at(gpu::Device& device, GpuPlan& plan) {
  constexpr size_t kBytes = size_t{64} << 20;
  plan.device = device.info();
  plan.free = device.free_memory();
  {
    const gpu::Buffer to = device.allocate(kBytes, "a measurement");
    const auto stream = device.create_stream();
    const gpu::HostBuffer host = device.allocate_host(kBytes, "a measurement");
    std::fill_n(host.host<char>(), kBytes, 0);
    plan.bus = gpu::copy_speed(device, *stream, to.as(), host.host(), kBytes);
  }
  plan.bandwidth = gpu::memory_bandwidth(device);
}

gpu::GpuOptions gpu_options(const Options& options, int context, Residency residency,
                            std::optional<uint64_t> cache) {
  gpu::GpuOptions gpu;
  gpu.context = context;
  gpu.half_kv = options.kv == cpu::KvType::F16;
  gpu.experts.residency = residency;
  if (residency != Residency::full) gpu.experts.cache_bytes = cache;
  return gpu;
}

/// `taken`: device memory besides the experts.
std::vector<GpuChoice> gpu_choices(const model::Model& model, uint64_t free, uint64_t taken,
                                   bool host_holds) {
  const uint64_t all = gpu::DeviceModel::expert_bytes(model);
  const uint64_t room = free - std::min(free, taken + gpu::kDeviceReserve);
  std::vector<GpuChoice> choices = {{Residency::full, all, taken + all, all <= room}};
  for (const Residency residency : {Residency::device, Residency::host}) {
    const uint64_t least = residency == Residency::device ? gpu::DeviceModel::least_cache_bytes(model)
                                                          : gpu::HostDecode::least_cache_bytes(model);
    std::vector<uint64_t> sizes;
    if (room < all) sizes.push_back(room);
    for (const uint64_t part : {2, 4, 8}) sizes.push_back(all / part);
    std::ranges::sort(sizes, std::greater<>());
    for (const uint64_t size : sizes) {
      const uint64_t mib = size / kMiB * kMiB;  // as a command line says it
      if (mib >= least)
        choices.push_back(
            {residency, mib, taken + mib, mib <= room && (residency == Residency::host || host_holds)});
    }
  }
  return choices;
}

}  // namespace

GpuPlan make_gpu_plan(const model::Model& model, const Options& options,
                      const std::function<std::unique_ptr<gpu::Device>()>& open, bool emulated,
                      const Report& report) {
  GpuPlan plan;
  report("GPU", 0);
  look_at(*open(), plan);
  const uint64_t all = gpu::DeviceModel::expert_bytes(model);
  const bool host_holds = gpu::host_holds_experts(model, available_memory());
  const int n_text = emulated ? 12 : 192;
  const int n_prompt = emulated ? std::min(options.prompt, 4) : options.prompt;
  const int context = std::max({options.context, n_prompt, n_text});

  Length length{n_prompt, 64, 5};
  if (emulated) length = {n_prompt, 4, 1};
  const auto measure_choice = [&](GpuChoice& choice) {
    gpu::GpuRunner runner(
        model, open(),
        gpu_options(options, std::max(context, length.context()), choice.residency, choice.cache));
    const Speeds speeds = measure(model, runner, options.kv == cpu::KvType::F16 ? 2 : 4, length,
                                  [&] { return bench::counters_of(runner); });
    choice.memory = runner.device_use().total();
    choice.prefill_tok_s = speeds.prefill_tok_s;
    choice.decode_tok_s = speeds.decode_tok_s;
    choice.hit_rate = speeds.hit_rate;
  };

  // How much is taken besides the experts a runner with the least cache tells, which is a probe, too.
  const uint64_t least =
      std::max(gpu::DeviceModel::least_cache_bytes(model), gpu::HostDecode::least_cache_bytes(model));
  const uint64_t dense = model.dense_bytes() + model.dense_bytes() / 4 + (uint64_t{2} << 30);
  const uint64_t most = std::max(least, plan.free - std::min(plan.free, dense));
  // Little enough that a text misses something, and room for the few tokens whose experts must be there.
  const uint64_t cache = std::min({all, most, std::max(all / 8, 6 * least)});
  const auto probe = [&](Residency residency, MissCurves& curves, double from, uint64_t& taken) {
    report("bringing weights to the GPU", from);
    gpu::GpuOptions gpu = gpu_options(options, context, residency, cache);
    gpu.streamed_from =
        std::min(gpu.streamed_from, n_prompt);  // to know what short prompts cost all resident
    gpu::GpuRunner runner(model, open(), gpu);
    taken = runner.device_use().total() - runner.device_use().cache;
    return probe_gpu(runner, model, plan.bus, n_prompt, n_text, curves,
                     [&](double part) { report("running the model", from + 0.4 * part); });
  };
  plan.measured = model.dense_bytes() + model.expert_bytes() <= kSmall;
  if (plan.measured) {
    plan.choices = gpu_choices(model, plan.free, 0, host_holds);
    for (size_t i = 0; i < plan.choices.size(); ++i) {
      report("running the model", static_cast<double>(i) / static_cast<double>(plan.choices.size()));
      if (plan.choices[i].fits) measure_choice(plan.choices[i]);
    }
  } else {
    MissCurves curves;
    uint64_t taken = 0;
    if (host_holds) plan.from_device = probe(Residency::device, curves, 0.1, taken);
    plan.from_host = probe(Residency::host, curves, 0.5, taken);
    plan.choices = gpu_choices(model, plan.free, taken, host_holds);
    for (GpuChoice& choice : plan.choices) {
      if (!choice.fits) continue;
      if (choice.residency == Residency::host) {
        predict_gpu(model.config(), all, *plan.from_host, curves, n_prompt, choice);
      } else if (plan.from_device) {
        predict_gpu(model.config(), all, *plan.from_device, curves, n_prompt, choice);
      } else {
        measure_choice(choice);
      }
    }
  }
  plan.recommendation = recommended(plan.choices);
  return plan;
}

}  // namespace redlite::plan
