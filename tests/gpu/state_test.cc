// States of the GPU's runner: copied out, written, read back, gone on with.

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "gpu/gpu_runner.h"
#include "model/temporary_model.h"
#include "residencies.h"
#include "session/fingerprint.h"
#include "session/state_file.h"
#include "support/temporary_folder.h"

namespace redlite::gpu {
namespace {

using model::LogitsFor;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryFolder;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class GpuState : public ::testing::Test {
 protected:
  TemporaryModel file{TinyModel("qwen3next")};
  model::Model model{file.path()};
  std::vector<Token> tokens = some_tokens(68, TinyModel::kVocab);
};

std::vector<float> one_by_one(model::Runner& runner, std::span<const Token> tokens) {
  std::vector<float> logits;
  for (const Token& token : tokens) {
    const std::span<const float> one = runner.forward({&token, 1}, LogitsFor::Last);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  return logits;
}

/// Logits of `rest` after `begin`.
std::vector<float> uninterrupted(const model::Model& model, const GpuOptions& options,
                                 std::span<const Token> begin, std::span<const Token> rest) {
  GpuRunner runner(model, open_emulator({.threads = 1}), options);
  runner.forward(begin, LogitsFor::None);
  return one_by_one(runner, rest);
}

/// Logits of `rest` after a state that was saved in one runner and loaded into another.
std::vector<float> continued(const model::Model& model, const GpuOptions& options,
                             std::span<const Token> begin, std::span<const Token> rest) {
  model::Sequence::StateBytes sizes;
  std::vector<std::byte> mark, positions;
  const int n = static_cast<int>(begin.size());
  {
    GpuRunner runner(model, open_emulator({.threads = 1}), options);
    const auto sequence = runner.make_sequence();
    sizes = sequence->state_bytes().value();
    runner.forward(begin.first(begin.size() - 3), LogitsFor::None);
    for (const Token& token : begin.last(3)) runner.forward({&token, 1}, LogitsFor::None);
    const auto place = sequence->mark();
    mark.assign(place->bytes().begin(), place->bytes().end());
    EXPECT_EQ(mark.size(), sizes.mark);
    runner.forward(rest.first(2), LogitsFor::None);  // what is behind the mark does not matter
    positions.resize(sizes.position * static_cast<size_t>(n));
    sequence->save_positions(n, positions);
  }
  GpuRunner runner(model, open_emulator({.seed = 9, .threads = 2}), options);
  const auto sequence = runner.make_sequence();
  runner.forward(rest.first(3), LogitsFor::None);  // another conversation was here
  sequence->load_positions(n, positions);
  sequence->rewind(*sequence->load_mark(n, mark));
  EXPECT_EQ(sequence->position(), n);
  return one_by_one(runner, rest);
}

TEST_F(GpuState, ASavedStateGoesOnWithTheSameBits) {
  const std::span<const Token> all(tokens), begin = all.first(20), rest = all.subspan(20, 5);
  for (const ExpertChoice& experts : all_residencies(model)) {
    const bool half_kv = experts.residency == Residency::device;
    const std::vector<float> expected = uninterrupted(model, {.half_kv = half_kv}, begin, rest);
    EXPECT_EQ(continued(model, {.context = 100, .half_kv = half_kv, .experts = experts}, begin, rest),
              expected);
  }
}

TEST(GpuStates, StatesOfAttentionAloneAreMarkedEverywhere) {
  const TemporaryModel file{TinyModel("qwen3moe")};
  const model::Model model(file.path());
  GpuRunner runner(model, open_emulator({.threads = 1}), {});
  const auto sequence = runner.make_sequence();
  EXPECT_EQ(sequence->state_bytes()->mark, 0u);
  const std::vector<Token> tokens = some_tokens(20, TinyModel::kVocab);
  const std::span<const Token> all(tokens);
  runner.forward(all.first(12), LogitsFor::None);
  const auto logits = [&] {
    const std::span<const float> last = runner.forward(all.subspan(12), LogitsFor::Last);
    return std::vector<float>(last.begin(), last.end());
  };
  const std::vector<float> expected = logits();
  std::vector<std::byte> positions(sequence->state_bytes()->position * 20);
  sequence->save_positions(20, positions);
  runner.reset();
  sequence->load_positions(20, positions);
  sequence->rewind(*sequence->load_mark(12, {}));
  EXPECT_EQ(logits(), expected);
}

TEST_F(GpuState, StatesAreKnownByTheirFormat) {
  GpuRunner half(model, open_emulator({}), {.half_kv = true}), single(model, open_emulator({}), {});
  EXPECT_NE(half.state_format(), single.state_format());
  EXPECT_THAT(half.state_format(), HasSubstr("emulator"));
}

TEST_F(GpuState, AFileOfAnotherKindOrATruncatedOneIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.rlstate";
  GpuRunner runner(model, open_emulator({.threads = 1}), {});
  const auto shape_of = [&](GpuRunner& of) {
    const model::Sequence::StateBytes bytes = of.make_sequence()->state_bytes().value();
    session::StateShape shape{.fingerprint = {},
                              .mark_bytes = bytes.mark,
                              .position_bytes = bytes.position,
                              .capacity = of.capacity(),
                              .n_vocab = TinyModel::kVocab};
    std::ranges::copy(session::fingerprint(model, of.state_format()), shape.fingerprint);
    return shape;
  };
  const session::StateShape shape = shape_of(runner);
  runner.forward(std::span(tokens).first(9), LogitsFor::None);
  const auto sequence = runner.make_sequence();
  const auto mark = sequence->mark();
  std::vector<std::byte> positions(9 * shape.position_bytes);
  sequence->save_positions(9, positions);
  const std::vector<std::span<const std::byte>> marks = {mark->bytes()};
  session::write_state_file(path, shape, {{tokens.begin(), tokens.begin() + 9}, {9}}, positions, marks);

  session::StateHead head;
  const session::StateContent content = session::read_state_file(path, shape, head);
  EXPECT_TRUE(std::ranges::equal(content.positions.span(), positions));
  EXPECT_TRUE(std::ranges::equal(content.marks.at(0).span(), mark->bytes()));
  GpuRunner half(model, open_emulator({.threads = 1}), {.half_kv = true});
  EXPECT_THAT([&] { session::read_state_file(path, shape_of(half), head); },
              ThrowsMessage<session::ForeignState>(HasSubstr("another model, program or settings")));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT([&] { session::read_state_file(path, shape, head); },
              ThrowsMessage<Error>(HasSubstr("truncated or damaged")));
}

}  // namespace
}  // namespace redlite::gpu
