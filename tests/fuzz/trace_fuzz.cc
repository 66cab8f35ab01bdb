// The trace reader on any bytes: it gives a trace whose every claim holds and that is written as the same
// bytes again, or throws a one-line Error; and what it gives can be simulated. The checksum, which no
// mutation keeps, is set right first.

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "simulate/simulate.h"
#include "trace/trace.h"

namespace redlite {
namespace {

void check_message(std::string_view message) {
  RL_CHECK(message.starts_with("t.trace: "), "{}", message);
  for (const char c : message) RL_CHECK(c >= 0x20 && c < 0x7f, "a character {} reached the message", int{c});
}

void set_checksum(std::vector<std::byte>& bytes) {
  if (bytes.size() < 4) return;
  uint32_t crc = ~uint32_t{0};
  for (size_t i = 0; i + 4 < bytes.size(); ++i) {
    crc ^= static_cast<uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  for (size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(~crc >> (8 * i));
}

void replay(const trace::Trace& trace) {
  const experts::SizeClasses sizes = simulate::size_classes(trace, simulate::Slots::BySize);
  // A table for every expert and its uses: as much as a file of this size can describe, but not more than
  // that.
  if (static_cast<uint64_t>(trace.n_layers) * static_cast<uint64_t>(trace.n_experts) > 1 << 16) return;
  simulate::Setup setup;
  setup.cache_bytes = (sizes.minimum_bytes(trace.n_used) + sizes.full_bytes()) / 2;
  for (const simulate::Policy policy : simulate::kPolicies) {
    setup.policy = policy;
    setup.predictor = trace.n_tokens() % 2 == 0 ? simulate::Predictor::Router : simulate::Predictor::None;
    const simulate::Result result = simulate::simulate(trace, setup, {20e9, 2e9});
    RL_CHECK(result.stats.hits + result.stats.misses + result.stats.prefetch_late <= trace.selected.size());
  }
}

void run(std::span<const std::byte> input) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  set_checksum(bytes);
  try {
    const trace::Trace trace = trace::decode("t.trace", bytes);
    RL_CHECK(trace.selected.size() ==
             trace.n_tokens() * static_cast<size_t>(trace.n_layers) * static_cast<size_t>(trace.n_used));
    RL_CHECK(std::accumulate(trace.chunks.begin(), trace.chunks.end(), uint64_t{0}) == trace.n_tokens());
    for (const uint16_t e : trace.selected) RL_CHECK(e < trace.n_experts);
    for (const uint16_t e : trace.predicted) RL_CHECK(e < trace.n_experts);
    RL_CHECK(trace::decode("t.trace", trace::encode(trace)) == trace);
    replay(trace);
  } catch (const Error& e) {
    check_message(e.what());
  }
}

}  // namespace
}  // namespace redlite

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::run(std::as_bytes(std::span(data, size)));
  return 0;
}
