// What reads a file's metadata and weights after the container: configuration, binding of tensors, tokenizer,
// and a forward pass over weights that may be NaN or infinite.

#include <cstdint>
#include <span>

#include "base/error.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "reference/reference_runner.h"

namespace redlite {
namespace {

/// Work and memory of a forward pass, in values; a file of a few kilobytes can ask for more than a fuzzer has
/// time for, by shapes that a real machine would merely find large.
bool small_enough(const model::Config& c) {
  const int64_t state =
      int64_t{c.n_v_heads} * c.state_dim * c.state_dim + int64_t{c.conv_kernel} * c.conv_dim();
  const int64_t layer = int64_t{c.n_embd} * (c.n_experts + c.n_heads * int64_t{c.head_dim} + c.conv_dim() +
                                             int64_t{c.n_experts_used} * c.expert_ff + c.shared_ff);
  return c.n_layers * (state + layer) + int64_t{c.n_vocab} * c.n_embd < 1'000'000;
}

void run(std::span<const std::byte> bytes) {
  try {
    const model::Model opened(gguf::File::from_bytes("m.gguf", bytes));
    const model::Config& config = opened.config();
    if (!small_enough(config)) return;
    reference::ReferenceRunner runner(opened, 4);
    const model::Token tokens[] = {0, config.n_vocab - 1};
    const auto logits = runner.forward(tokens, model::LogitsFor::Last);
    RL_CHECK(logits.size() == static_cast<size_t>(config.n_vocab), "{} logits", logits.size());
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace redlite

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::run(std::as_bytes(std::span(data, size)));
  return 0;
}
