#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::tokenizer {
namespace {

/// Tokens known by their text. Files name one end token and often call the others normal or user-defined;
/// llama.cpp takes these texts, in Qwen's vocabularies, for control tokens whatever the file says.
struct KnownToken {
  const char* key;  ///< names this token in the file; the text counts only where it does not
  const char* text;
  bool ends;
};
constexpr KnownToken kKnownTokens[] = {
    {nullptr, "<|im_end|>", true},
    {nullptr, "<|endoftext|>", true},
    {nullptr, "</s>", true},
    {"tokenizer.ggml.fim_pre_token_id", "<|fim_prefix|>", false},
    {"tokenizer.ggml.fim_suf_token_id", "<|fim_suffix|>", false},
    {"tokenizer.ggml.fim_mid_token_id", "<|fim_middle|>", false},
    {"tokenizer.ggml.fim_pad_token_id", "<|fim_pad|>", true},
    {"tokenizer.ggml.fim_rep_token_id", "<|repo_name|>", true},
    {"tokenizer.ggml.fim_sep_token_id", "<|file_sep|>", true},
};

class Reader {
 public:
  explicit Reader(const gguf::File& file) : file_(file) {}

  std::string required_string(const char* key) const {
    auto value = file_.get_string(key);
    if (!value) fail("{}: {} is missing; without it there is no tokenizer", file_.path(), key);
    return *std::move(value);
  }

  std::vector<std::string> required_strings(const char* key) const {
    auto value = file_.get_strings(key);
    if (!value) fail("{}: {} is missing; without it there is no tokenizer", file_.path(), key);
    return *std::move(value);
  }

  /// -1 if the key is absent.
  Token token_id(const char* key, size_t n_tokens) const {
    const auto id = file_.get_uint(key);
    if (!id) return -1;
    if (*id >= n_tokens) fail("{}: {} is {}, but there are only {} tokens", file_.path(), key, *id, n_tokens);
    return static_cast<Token>(*id);
  }

 private:
  const gguf::File& file_;
};

Pretokenizer read_pretokenizer(const gguf::File& file, const std::string& name) {
  if (name == "qwen2") return Pretokenizer::Qwen2;
  if (name == "qwen35") return Pretokenizer::Qwen35;
  fail("{}: tokenizer.ggml.pre is {}; supported: qwen2, qwen35", file.path(), quote(name));
}

uint8_t kind_of(uint64_t ggml_type) {
  switch (ggml_type) {
    case 1:
      return kNormal;
    case 2:
      return kUnknown;
    case 3:
      return kControl;
    case 4:
      return kUserDefined;
    case 6:
      return kByte;
    default:
      return 0;
  }
}

std::vector<uint8_t> read_kinds(const gguf::File& file, size_t n_tokens) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  const auto types = file.get_uints(kKey);
  if (!types) return std::vector<uint8_t>(n_tokens, kNormal);
  if (types->size() != n_tokens) {
    fail("{}: {} has {} values for {} tokens", file.path(), kKey, types->size(), n_tokens);
  }
  std::vector<uint8_t> kinds(n_tokens);
  std::transform(types->begin(), types->end(), kinds.begin(), kind_of);
  return kinds;
}

void add_end(Vocabulary& vocabulary, Token token) {
  if (token < 0) return;
  const auto at = std::lower_bound(vocabulary.ends.begin(), vocabulary.ends.end(), token);
  if (at == vocabulary.ends.end() || *at != token) vocabulary.ends.insert(at, token);
}

void apply_known_tokens(Vocabulary& vocabulary, const gguf::File& file) {
  for (const KnownToken& known : kKnownTokens) {
    const Token named = known.key ? Reader(file).token_id(known.key, vocabulary.texts.size()) : -1;
    if (named >= 0) {
      if (known.ends) add_end(vocabulary, named);
      continue;
    }
    const auto at = std::find(vocabulary.texts.begin(), vocabulary.texts.end(), known.text);
    if (at == vocabulary.texts.end()) continue;
    const size_t token = static_cast<size_t>(at - vocabulary.texts.begin());
    vocabulary.kinds[token] |= kControl;
    if (known.ends) add_end(vocabulary, static_cast<Token>(token));
  }
}

}  // namespace

Vocabulary read_vocabulary(const gguf::File& file) {
  const Reader read(file);
  const std::string model = read.required_string("tokenizer.ggml.model");
  if (model != "gpt2") {
    fail("{}: tokenizer.ggml.model is {}; supported: gpt2 (byte-level BPE)", file.path(), quote(model));
  }
  Vocabulary v;
  v.pretokenizer = read_pretokenizer(file, read.required_string("tokenizer.ggml.pre"));
  v.texts = read.required_strings("tokenizer.ggml.tokens");
  const size_t n = v.texts.size();
  if (n == 0) fail("{}: tokenizer.ggml.tokens is empty", file.path());
  if (n > size_t{std::numeric_limits<Token>::max()}) {
    fail("{}: tokenizer.ggml.tokens has {} tokens; a token id has 31 bits", file.path(), n);
  }
  for (size_t i = 0; i < n; ++i) {
    if (v.texts[i].empty()) v.texts[i] = fmt::format("[EMPTY_{}]", i);  // as llama.cpp names them
  }
  v.kinds = read_kinds(file, n);
  v.merges = read.required_strings("tokenizer.ggml.merges");
  v.bos = read.token_id("tokenizer.ggml.bos_token_id", n);
  v.eos = read.token_id("tokenizer.ggml.eos_token_id", n);
  v.add_bos = file.get_bool("tokenizer.ggml.add_bos_token").value_or(false);
  v.add_eos = file.get_bool("tokenizer.ggml.add_eos_token").value_or(false);
  if (v.add_bos && v.bos < 0) {
    fail("{}: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing", file.path());
  }
  if (v.add_eos && v.eos < 0) {
    fail("{}: tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing", file.path());
  }
  add_end(v, v.eos);
  add_end(v, read.token_id("tokenizer.ggml.eot_token_id", n));
  add_end(v, read.token_id("tokenizer.ggml.eom_token_id", n));
  apply_known_tokens(v, file);
  return v;
}

}  // namespace redlite::tokenizer
