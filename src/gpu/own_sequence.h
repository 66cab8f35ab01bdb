#pragma once

#include <memory>
#include <optional>
#include <span>

#include "gpu/sequence.h"
#include "model/runner.h"

namespace redlite::gpu {

/// The runner's only sequence as others see it. Marks and saved states lie in host memory.
class OwnSequence final : public model::Sequence {
 public:
  /// Both must outlive it.
  OwnSequence(gpu::Sequence& state, Stream& stream) : state_(state), stream_(stream) {}

  int position() const override { return state_.position; }
  int capacity() const override { return state_.capacity(); }
  void reset() override { state_.reset(stream_); }
  std::unique_ptr<model::Mark> mark() const override;
  void rewind(const model::Mark& mark) override;

  std::optional<StateBytes> state_bytes() const override;
  std::unique_ptr<model::Mark> load_mark(int position, std::span<const std::byte> bytes) const override;
  void save_positions(int n, std::span<std::byte> out) const override { state_.save(stream_, n, out); }
  void load_positions(int n, std::span<const std::byte> bytes) override { state_.load(stream_, n, bytes); }

 private:
  size_t mark_bytes() const;

  gpu::Sequence& state_;
  Stream& stream_;
};

}  // namespace redlite::gpu
