#pragma once

#include <map>
#include <memory>
#include <string>

#include "gpu/device.h"

namespace redlite::gpu {

/// Times of kernels by stage, each run on its own: without the overlap of early starts, and without a graph.
class Profile {
 public:
  struct Stage {
    double milliseconds = 0;
    int launches = 0;
  };

  Profile(Device& device, Stream& stream)
      : stream_(stream), start_(device.create_event()), end_(device.create_event()) {}

  /// Runs `launch`, which puts one kernel into the stream.
  template <typename F>
  void time(const std::string& stage, F&& launch) {
    stream_.record(*start_);
    launch();
    stream_.record(*end_);
    stream_.synchronize();
    Stage& s = stages_[stage];
    s.milliseconds += end_->milliseconds_since(*start_);
    ++s.launches;
  }

  const std::map<std::string, Stage>& stages() const { return stages_; }

 private:
  Stream& stream_;
  std::unique_ptr<Event> start_, end_;
  std::map<std::string, Stage> stages_;
};

}  // namespace redlite::gpu
