#include "bench/workload.h"

#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "engine/sampler.h"

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

Text write_text(model::Runner& runner, int n, int n_vocab, const std::function<void()>& progress) {
  engine::SamplerOptions options;
  options.temperature = 1;
  options.seed = 1;
  engine::Sampler sampler(options);
  Text text;
  TokenExperts experts;
  runner.set_tap([&](model::Stage stage, int, int, int, std::span<const float> ids) {
    if (stage != model::Stage::ExpertIds) return;
    for (const float id : ids) experts.push_back(static_cast<int>(id));
  });
  model::Token token = random_tokens(1, n_vocab, 2).front();
  for (int i = 0; i < n; ++i) {
    text.tokens.push_back(token);
    const std::span<const float> logits = runner.forward({&token, 1}, model::LogitsFor::Last);
    text.hashes.push_back(hash(logits));
    text.experts.push_back(std::exchange(experts, {}));
    token = sampler.sample(logits);
    progress();
  }
  runner.set_tap({});
  return text;
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
