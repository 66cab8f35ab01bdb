#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "tokenizer/pretokenizer.h"

namespace redlite::tokenizer {

using Token = int32_t;

/// tokenizer.ggml.token_type, as a set: a token may be both what the file says and control.
enum TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 4,
  kUserDefined = 8,
  kByte = 16,  ///< its text is <0xNN>
};

/// What a file says about its tokenizer, checked: ids are in range, texts are not empty, lists are of one
/// length.
struct Vocabulary {
  Pretokenizer pretokenizer = Pretokenizer::Qwen2;
  std::vector<std::string> texts;   ///< of each token, in the byte-level alphabet
  std::vector<uint8_t> kinds;       ///< TokenKind bits of each token; none: unused
  std::vector<std::string> merges;  ///< "left right", the first to be applied first
  Token bos = -1;
  Token eos = -1;
  bool add_bos = false;
  bool add_eos = false;
  std::vector<Token> ends;  ///< tokens that end generation, ascending

  bool is_kind(Token token, uint8_t kind) const { return (kinds[static_cast<size_t>(token)] & kind) != 0; }
};

/// Reads the tokenizer.ggml.* keys; throws Error naming file and key. Duplicate texts are left for the index
/// of texts to find.
Vocabulary read_vocabulary(const gguf::File& file);

}  // namespace redlite::tokenizer
