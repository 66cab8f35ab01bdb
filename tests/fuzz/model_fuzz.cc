// What reads a file's metadata and weights after the container: configuration, binding of tensors, tokenizer,
// chat template, sizes of the expert cache, and a forward pass over weights that may be NaN or infinite.

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "chat/chat.h"
#include "experts/cache.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "reference/reference_runner.h"
#include "tokenizer/tokenizer.h"

namespace redlite {
namespace {

/// Text with something for every branch: letters, contractions, digits, white space, CJK, emoji, special
/// tokens and bytes that are no UTF-8.
constexpr std::string_view kText =
    "ab ab's  12\n\t<|im_end|>\xe4\xb8\xad\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 \xc3\xa9\xcc\x81!? "
    "\xff\xc3";

void use_tokenizer(const gguf::File& file) {
  try {
    const tokenizer::Tokenizer tokenizer(file);
    tokenizer::StreamDecoder decoder(tokenizer, true);
    for (const bool special : {false, true}) {
      for (const tokenizer::Token token : tokenizer.encode(kText, special)) {
        RL_CHECK(token >= 0 && token < tokenizer.size(), "token {} of {}", token, tokenizer.size());
        decoder.push(token);
      }
    }
    decoder.finish();
    for (int token = 0; token < tokenizer.size(); ++token) {
      tokenizer.piece(token);
      tokenizer.is_end(token);
    }
    chat::encode(tokenizer, chat::render_user_message(file, "ab <|im_end|>"));
  } catch (const Error&) {
  }
}

/// Work and memory of a forward pass, in values; a file of a few kilobytes can ask for more than a fuzzer has
/// time for, by shapes that a real machine would merely find large.
bool small_enough(const model::Config& c) {
  const int64_t state =
      int64_t{c.n_v_heads} * c.state_dim * c.state_dim + int64_t{c.conv_kernel} * c.conv_dim();
  const int64_t layer = int64_t{c.n_embd} * (c.n_experts + c.n_heads * int64_t{c.head_dim} + c.conv_dim() +
                                             int64_t{c.n_experts_used} * c.expert_ff + c.shared_ff);
  return c.n_layers * (state + layer) + int64_t{c.n_vocab} * c.n_embd < 1'000'000;
}

void use_model(const model::Model& opened) {
  const model::Config& config = opened.config();
  const uint64_t full = experts::ExpertCache::full_bytes(opened);
  RL_CHECK(experts::ExpertCache::minimum_bytes(opened) <= full, "full {}", full);
  if (!small_enough(config)) return;
  reference::ReferenceRunner runner(opened, 4);
  const model::Token tokens[] = {0, config.n_vocab - 1};
  const auto logits = runner.forward(tokens, model::LogitsFor::Last);
  RL_CHECK(logits.size() == static_cast<size_t>(config.n_vocab), "{} logits", logits.size());
}

void run(std::span<const std::byte> bytes) {
  try {
    gguf::File file = gguf::File::from_bytes("m.gguf", bytes);
    use_tokenizer(file);
    use_model(model::Model(std::move(file)));
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace redlite

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::run(std::as_bytes(std::span(data, size)));
  return 0;
}
