#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../gguf/raw_gguf.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

namespace redlite::tokenizer {

/// The metadata of a tokenizer, made by hand: the 256 bytes as tokens 0 to 255, then what a test adds.
struct SmallVocabulary {
  std::string model = "gpt2";
  std::string pre = "qwen2";
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::map<std::string, uint32_t> ids;  ///< tokenizer.ggml.<key>_token_id
  std::map<std::string, bool> flags;    ///< tokenizer.ggml.<key>
  std::vector<std::string> left_out;    ///< keys not to write
  std::string template_source;          ///< tokenizer.chat_template; empty: none

  SmallVocabulary() {
    for (const std::string& character : byte_characters()) add(character, 1);
  }

  Token add(std::string text, int32_t type) {
    texts.push_back(std::move(text));
    types.push_back(type);
    return static_cast<Token>(texts.size() - 1);
  }
  /// A merge and the token it makes.
  Token add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right, 1);
  }

  gguf::RawGguf bytes() const {
    std::vector<gguf::RawGguf> entries;
    const auto wanted = [&](const std::string& key) {
      return std::find(left_out.begin(), left_out.end(), key) == left_out.end();
    };
    const auto entry = [&](const std::string& key, gguf::ValueType type) -> gguf::RawGguf& {
      return entries.emplace_back().key("tokenizer.ggml." + key, type);
    };
    const auto strings = [&](const std::string& key, const std::vector<std::string>& values) {
      gguf::RawGguf& e = entry(key, gguf::ValueType::Array);
      e.num(static_cast<uint32_t>(gguf::ValueType::String)).num(uint64_t{values.size()});
      for (const std::string& value : values) e.string(value);
    };
    if (wanted("model")) entry("model", gguf::ValueType::String).string(model);
    if (wanted("pre")) entry("pre", gguf::ValueType::String).string(pre);
    if (wanted("tokens")) strings("tokens", texts);
    if (wanted("merges")) strings("merges", merges);
    if (wanted("token_type")) {
      gguf::RawGguf& e = entry("token_type", gguf::ValueType::Array);
      e.num(static_cast<uint32_t>(gguf::ValueType::I32)).num(uint64_t{types.size()});
      for (const int32_t type : types) e.num(type);
    }
    for (const auto& [key, id] : ids) entry(key + "_token_id", gguf::ValueType::U32).num(id);
    for (const auto& [key, flag] : flags) entry(key, gguf::ValueType::Bool).num(uint8_t{flag});

    if (!template_source.empty()) {
      entries.emplace_back().key("tokenizer.chat_template", gguf::ValueType::String).string(template_source);
    }

    gguf::RawGguf file(3, 0, entries.size());
    for (gguf::RawGguf& e : entries) file.text(e.data());
    return file;
  }

  Tokenizer make() const {
    const gguf::RawGguf raw = bytes();
    return Tokenizer(raw.parse());
  }
};

}  // namespace redlite::tokenizer
