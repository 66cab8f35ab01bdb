#include "gpu/own_sequence.h"

#include <cstring>

#include "base/aligned.h"
#include "base/error.h"

namespace redlite::gpu {
namespace {

/// The DeltaNet states as they lie on the device, and Step::flip behind them: which half of the histories is
/// the right one. Nothing where there are no such layers.
struct GpuMark final : model::Mark {
  GpuMark(int at, size_t size) : position(at), state(size) {}
  std::span<const std::byte> bytes() const override { return state.span(); }

  int position;
  AlignedBuffer<std::byte> state;
};

}  // namespace

size_t OwnSequence::mark_bytes() const {
  const size_t recurrent = state_.recurrent().bytes();
  return recurrent == 0 ? 0 : recurrent + sizeof(uint32_t);
}

std::unique_ptr<model::Mark> OwnSequence::mark() const {
  auto mark = std::make_unique<GpuMark>(state_.position, mark_bytes());
  if (mark->state.size() > 0) {
    const Buffer& recurrent = state_.recurrent();
    const WaitAtExit wait(stream_);
    stream_.copy(mark->state.data(), recurrent.as(), recurrent.bytes());
    stream_.synchronize();
    std::memcpy(mark->state.data() + recurrent.bytes(), &state_.flip, sizeof(uint32_t));
  }
  return mark;
}

void OwnSequence::rewind(const model::Mark& mark) {
  const auto* place = dynamic_cast<const GpuMark*>(&mark);
  RL_CHECK(place != nullptr, "a mark of another runner's");
  RL_CHECK(place->position <= state_.position && place->state.size() == mark_bytes(), "position {}",
           state_.position);
  if (place->state.size() > 0) {
    const Buffer& recurrent = state_.recurrent();
    const WaitAtExit wait(stream_);
    stream_.copy(recurrent.as(), place->state.data(), recurrent.bytes());
    stream_.synchronize();
    std::memcpy(&state_.flip, place->state.data() + recurrent.bytes(), sizeof(uint32_t));
    state_.flip &= 1;  // whatever a file says
  }
  state_.position = place->position;
}

std::optional<model::Sequence::StateBytes> OwnSequence::state_bytes() const {
  return StateBytes{mark_bytes(), state_.position_bytes()};
}

std::unique_ptr<model::Mark> OwnSequence::load_mark(int position, std::span<const std::byte> bytes) const {
  RL_CHECK(bytes.size() == mark_bytes() && position >= 0 && position <= state_.capacity());
  auto mark = std::make_unique<GpuMark>(position, bytes.size());
  if (!bytes.empty()) std::memcpy(mark->state.data(), bytes.data(), bytes.size());
  return mark;
}

}  // namespace redlite::gpu
