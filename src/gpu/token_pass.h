#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "gpu/device_model.h"
#include "gpu/host_decode.h"
#include "gpu/profile.h"
#include "gpu/scratch.h"
#include "gpu/sequence.h"
#include "model/runner.h"

namespace redlite::gpu {

/// The kernels of a token's forward pass, from its embedding to its logits: puts them into a stream, there to
/// run or to be captured. The token's embedding and Step are the caller's to put in place.
class TokenPass {
 public:
  /// All must outlive it. `concurrent`: kernels start before those in front of them have ended.
  TokenPass(Stream& stream, const model::Config& config, const DeviceModel& weights, const Sequence& sequence,
            const Scratch& scratch, bool concurrent);

  /// The host manages the slots: every kernel asks the early-out flag, and routers tell what they find.
  void use_host(const HostDecode& host);
  /// Each layer's router also predicts the next layer's experts: a device that manages its cache loads them
  /// beside what it computes, a host is told.
  void use_prefetch(Device& device);
  /// Times each kernel from now on; nullptr: no more.
  void set_profile(Profile* profile) { profile_ = profile; }
  /// Shows every stage's values; an empty one: nothing. Must outlive the passes that follow.
  void set_tap(const model::Tap& tap) { tap_ = &tap; }
  bool tapped() const { return tap_ != nullptr && *tap_; }

  /// A whole pass; with `logits`, they stay on the device, and their best token is told to the host.
  void encode(bool logits);
  /// A segment of HostGpu.
  void segment(int number, bool predict, bool logits);

  /// Launches so far that were allowed to start early.
  uint64_t early_starts() const { return early_starts_; }

 private:
  // The pass's parts, in this order.
  void encode_embedding();
  void encode_mixer(int l, bool predict);  ///< with the router behind it
  void encode_experts(int l);              ///< of the slots that the router found, or that were filled since
  void encode_output();
  /// What layer l's router listed into slots that the device manages: for l, and beside what follows for
  /// l + 1.
  void encode_loads(int l);

  template <typename K>
  void launch(Dim3 grid, size_t dynamic_shared, typename K::Params params, bool may_start_early = true);
  void project(const ProjectInput& input, const Projection& matrices, float* y, float* residual);
  /// A kernel's stage in a profile.
  template <typename Params>
  std::string stage_of(const Params& /*params*/, const char* kernel) const {
    return kernel;
  }
  std::string stage_of(const Project::Params& p, const char* kernel) const;

  void show(model::Stage stage, int layer, int width, const float* values);
  void show_route(int layer);

  Stream& stream_;
  const model::Config& config_;
  const DeviceModel& weights_;
  const Sequence& sequence_;
  const Scratch& scratch_;
  bool concurrent_;
  Profile* profile_ = nullptr;
  const model::Tap* tap_ = nullptr;
  uint64_t early_starts_ = 0;

  const HostDecode* host_ = nullptr;  ///< Residency::host
  const uint32_t* skip_ = nullptr;    ///< the early-out flag of every kernel; nullptr: none

  bool predicts_ = false;
  // A cache that the device manages, with prefetch.
  std::unique_ptr<Stream> beside_;
  std::unique_ptr<Event> forked_, joined_;
};

}  // namespace redlite::gpu
