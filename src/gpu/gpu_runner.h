#pragma once

#include <memory>

#include "gpu/device.h"
#include "gpu/device_model.h"
#include "model/model.h"
#include "model/runner.h"

namespace redlite::gpu {

struct GpuOptions {
  int context = 0;       ///< tokens the state can hold; 0: the model's own limit, at most 4096
  int batch = 64;        ///< most tokens of one prefill chunk
  bool half_kv = false;  ///< keys and values in binary16
  ExpertPlacement experts = {};
};

/// The runner on a GPU or its emulation: one captured graph for each token of decode, without a decision of
/// the CPU's in it. Owns the device and the state of one sequence. Where experts live changes no bit of the
/// output.
class GpuRunner final : public model::Runner {
 public:
  /// Brings the weights to the device. Throws Error for a model that the kernels are not made for, and when
  /// the device's memory does not suffice.
  GpuRunner(const model::Model& model, std::unique_ptr<Device> device, const GpuOptions& options);
  ~GpuRunner() override;

  std::span<const float> forward(std::span<const model::Token> tokens, model::LogitsFor which) override;
  int position() const override;
  int capacity() const override;
  void reset() override;
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;

  const Device& device() const;
  Residency residency() const;
  SlotStatistics slot_statistics() const;
  /// Kernels of a token's graph; 0 before the first one.
  size_t graph_kernels() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::gpu
