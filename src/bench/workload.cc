#include "bench/workload.h"

#include <cstring>
#include <random>

#include "base/error.h"

namespace redlite::bench {

std::vector<model::Token> random_tokens(int n, int n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<model::Token> tokens;
  tokens.reserve(static_cast<size_t>(n));
  // Not std::uniform_int_distribution, which differs between libraries.
  for (int i = 0; i < n; ++i)
    tokens.push_back(static_cast<model::Token>(random() % static_cast<uint32_t>(n_vocab)));
  return tokens;
}

uint64_t hash(std::span<const float> logits) {
  // Lanes, so that multiplications overlap: this runs between two tokens, whose threads wait.
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes] = {};
  for (size_t i = 0; i < logits.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &logits[i], sizeof bits);
    uint64_t& lane = lanes[i % kLanes];
    lane = (lane ^ bits) * 0x9e3779b97f4a7c15u;
    lane ^= lane >> 29;
  }
  uint64_t result = logits.size();
  for (const uint64_t lane : lanes) result = (result ^ lane) * 0xff51afd7ed558ccdu ^ (result >> 31);
  return result;
}

Writer::Writer(int n_vocab)
    : first_(random_tokens(1, n_vocab, 2).front()), sampler_([] {
        engine::SamplerOptions options;
        options.temperature = 1;
        options.seed = 1;
        return options;
      }()) {}

ExpertsTap::ExpertsTap(model::Runner& runner) : runner_(runner) {
  runner_.set_tap([this](model::Stage stage, int, int, int, std::span<const float> ids) {
    if (stage != model::Stage::ExpertIds) return;
    for (const float id : ids) experts_.push_back(static_cast<int>(id));
  });
}

void Fingerprints::check(const std::string& what, uint64_t value) {
  const auto [known, is_new] = known_.try_emplace(what, value);
  if (is_new || known->second == value) return;
  fail(
      "{}: the logits are not those of an earlier run of the same tokens ({:016x}, before {:016x}); this is "
      "a "
      "fault of the program, and none of its figures count",
      what, value, known->second);
}

}  // namespace redlite::bench
