#include "synth/vocabulary.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "gguf/writer.h"

namespace redlite::synth {

namespace {

// GGUF's token types (llama_token_type).
constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUnused = 5;

constexpr const char* kChatTemplate =
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The 256 byte tokens in the order of their ids: the printable bytes as themselves, then the others as the
// characters from U+0100 on (GPT-2's byte encoding).
std::vector<std::string> byte_tokens() {
  const auto printable = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  std::vector<std::string> tokens;
  for (unsigned b = 0; b < 256; ++b)
    if (printable(b)) tokens.push_back(utf8(b));
  const unsigned n_printable = static_cast<unsigned>(tokens.size());
  for (unsigned i = 0; i < 256 - n_printable; ++i) tokens.push_back(utf8(0x100 + i));
  return tokens;
}

struct Merge {
  std::string left;
  std::string right;
};

// The first n merges: a blank with a letter, two letters, a blank with three letters, four letters; within
// each kind by falling frequency of the letters. All texts differ, so every merge adds one token.
std::vector<Merge> make_merges(size_t n) {
  constexpr std::string_view kLetters = "etaoinshrdlucmfwygpbvkxqjz";
  const std::string blank = utf8(0x120);
  std::vector<Merge> merges;
  std::vector<std::string> blanks;
  std::vector<std::string> pairs;
  for (const char c : kLetters) {
    merges.push_back({blank, {c}});
    blanks.push_back(blank + c);
  }
  const auto by_rank = [&](const std::vector<std::string>& left, const std::vector<std::string>& right,
                           auto&& keep) {
    for (size_t sum = 0; sum < left.size() + right.size(); ++sum)
      for (size_t i = 0; i <= std::min(sum, left.size() - 1); ++i)
        if (sum - i < right.size() && merges.size() < n) keep(left[i], right[sum - i]);
  };
  std::vector<std::string> letters;
  letters.reserve(kLetters.size());
  for (const char c : kLetters) letters.emplace_back(1, c);
  by_rank(letters, letters, [&](const std::string& a, const std::string& b) {
    merges.push_back({a, b});
    pairs.push_back(a + b);
  });
  if (!pairs.empty()) {
    by_rank(blanks, pairs, [&](const std::string& a, const std::string& b) { merges.push_back({a, b}); });
    by_rank(pairs, pairs, [&](const std::string& a, const std::string& b) { merges.push_back({a, b}); });
  }
  if (merges.size() < n) fail("the synthetic vocabulary has at most {} tokens", 259 + merges.size());
  merges.resize(n);
  return merges;
}

void pad(std::vector<std::string>& tokens, std::vector<int32_t>& types, int n_tokens) {
  for (int i = static_cast<int>(tokens.size()); i < n_tokens; ++i) {
    tokens.push_back(fmt::format("[PAD{}]", i));
    types.push_back(kUnused);
  }
}

std::vector<bool> text_tokens(const std::vector<int32_t>& types) {
  std::vector<bool> text;
  for (const int32_t type : types) text.push_back(type != kControl && type != kUnused);
  return text;
}

}  // namespace

Vocabulary make_vocabulary(int n_tokens, int first_special, const std::string& pre) {
  RL_CHECK(first_special >= 256 && first_special + 3 <= n_tokens, "{} {}", first_special, n_tokens);
  std::vector<std::string> tokens = byte_tokens();
  std::vector<std::string> merges;
  for (const Merge& m : make_merges(static_cast<size_t>(first_special) - tokens.size())) {
    tokens.push_back(m.left + m.right);
    merges.push_back(m.left + " " + m.right);
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(special);
    types.push_back(kControl);
  }
  pad(tokens, types, n_tokens);

  Vocabulary vocabulary;
  vocabulary.text = text_tokens(types);
  const uint32_t end_of_text = static_cast<uint32_t>(first_special);
  vocabulary.metadata = {
      {"tokenizer.ggml.model", std::string("gpt2")},
      {"tokenizer.ggml.pre", pre},
      {"tokenizer.ggml.tokens", gguf::make_array(std::move(tokens))},
      {"tokenizer.ggml.token_type", gguf::make_array(types)},
      {"tokenizer.ggml.merges", gguf::make_array(std::move(merges))},
      {"tokenizer.ggml.bos_token_id", end_of_text},
      {"tokenizer.ggml.eos_token_id", end_of_text + 2},
      {"tokenizer.ggml.padding_token_id", end_of_text},
      {"tokenizer.ggml.add_bos_token", false},
      {"tokenizer.chat_template", std::string(kChatTemplate)},
  };
  return vocabulary;
}

Vocabulary copy_vocabulary(const std::string& path, int n_tokens) {
  const gguf::File file(path);
  std::optional<std::vector<std::string>> tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!tokens) fail("{}: has no tokenizer.ggml.tokens, so no vocabulary to take", path);
  std::vector<int32_t> types(tokens->size(), kNormal);
  if (const auto stored = file.get_uints("tokenizer.ggml.token_type")) {
    if (stored->size() != types.size())
      fail("{}: {} token types for {} tokens", path, stored->size(), types.size());
    std::transform(stored->begin(), stored->end(), types.begin(),
                   [](uint64_t type) { return static_cast<int32_t>(type); });
  }
  pad(*tokens, types, n_tokens);

  Vocabulary vocabulary;
  vocabulary.text = text_tokens(types);
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with("tokenizer.") || key == "tokenizer.ggml.tokens" ||
        key == "tokenizer.ggml.token_type")
      continue;
    vocabulary.metadata.emplace_back(key, value);
  }
  vocabulary.metadata.emplace_back("tokenizer.ggml.tokens", gguf::make_array(std::move(*tokens)));
  vocabulary.metadata.emplace_back("tokenizer.ggml.token_type", gguf::make_array(types));
  return vocabulary;
}

}  // namespace redlite::synth
