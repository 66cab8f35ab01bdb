#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/device.h"
#include "gpu/device_model.h"
#include "gpu/gpu_runner.h"
#include "model/model.h"
#include "plan/plan.h"

namespace redlite::plan {

/// A place for the experts, with what it takes and gives.
struct GpuChoice {
  gpu::Residency residency = gpu::Residency::full;
  uint64_t cache = 0;   ///< bytes of device memory for experts
  uint64_t memory = 0;  ///< bytes of device memory, all together
  bool fits = false;    ///< into device memory, with a reserve, and the file into host memory where it must
  double hit_rate = 1;  ///< of a decoded token's selections, what was prefetched included
  double prefill_tok_s = 0;  ///< 0: not known, as it does not fit
  double decode_tok_s = 0;
};

/// Part of a layer's selections that i slots miss, least recently used given away first, for each i.
struct MissCurves {
  std::vector<double> text;    ///< decoded tokens
  std::vector<double> prompt;  ///< random tokens one by one, as in the benchmark's prompts
};

/// What a short run told about one residency of a model's experts.
struct GpuProbe {
  uint64_t cache = 0;        ///< bytes of device memory that it ran with
  double token_seconds = 0;  ///< a decoded token whose experts are all in their slots
  double miss_seconds = 0;   ///< what a missing expert adds to that
  double kept = 1;  ///< part of a cache's misses that prefetch leaves; 1 if there were too few to say
  // A prompt that brings all experts.
  double prompt_seconds = 0;         ///< in all
  double prompt_kernel_seconds = 0;  ///< its kernels but for those; Residency::device only
};

struct GpuPlan {
  gpu::DeviceInfo device;
  uint64_t free = 0;      ///< bytes of device memory
  double bus = 0;         ///< bytes a second from page-locked host memory
  double bandwidth = 0;   ///< bytes a second of device memory
  bool measured = false;  ///< the model was run at each choice; otherwise predicted from the probes
  std::optional<GpuProbe> from_device, from_host;  ///< of Residency::device and Residency::host
  std::vector<GpuChoice> choices;
  std::optional<size_t> recommendation;  ///< nullopt: nothing fits
};

/// Looks at a GPU and runs the model on it for some seconds. `open` is called for each runner. Throws Error
/// when the GPU cannot be used, or not for this model. `emulated`: as little is run as shows that it works.
GpuPlan make_gpu_plan(const model::Model& model, const Options& options,
                      const std::function<std::unique_ptr<gpu::Device>()>& open, bool emulated,
                      const Report& report);

/// A runner with a cache, observed: a prompt of random tokens, a text of at most `n_text` tokens, parts of
/// both again. `bus`: bytes a second that host memory gives to the device. Curves that are there already are
/// not measured again.
GpuProbe probe_gpu(gpu::GpuRunner& runner, const model::Model& model, double bus, int n_prompt, int n_text,
                   MissCurves& curves, const std::function<void(double part)>& progress);

/// What follows for a choice with a cache of the probe's residency, or for experts that are all resident from
/// a probe of Residency::device. `all`: bytes of device memory for all experts.
void predict_gpu(const model::Config& config, uint64_t all, const GpuProbe& probe, const MissCurves& curves,
                 int n_prompt, GpuChoice& choice);

}  // namespace redlite::plan
