#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::tokenizer {

using Token = int32_t;

/// Bytes begin to end of a text.
struct Range {
  size_t begin, end;
};

/// Byte-level BPE as GGUF stores it (tokenizer.ggml.model gpt2; pre-tokenizers qwen2 and qwen35).
///
/// Immutable after construction and safe to share between threads.
class Tokenizer {
 public:
  /// Throws Error naming the key when the file's tokenizer is missing, damaged or of another kind.
  explicit Tokenizer(const gguf::File& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Text to ids. With `parse_special`, control tokens such as <|im_start|> written in the text become their
  /// ids; without, they are plain text (user-defined tokens are matched either way, as in llama.cpp).
  /// Any bytes are accepted; one that belongs to no UTF-8 character is taken for U+FFFD. n log n in the
  /// length of the longest word, linear in the number of words. Throws Error for a text of more than 682 MiB.
  std::vector<Token> encode(std::string_view text, bool parse_special) const;

  /// encode() of a prompt of which these parts, in order, came from outside: control tokens are recognised,
  /// but not where they would touch a byte of such a part. What is merged into tokens otherwise does not
  /// depend on where the parts begin and end.
  std::vector<Token> encode(std::string_view text, std::span<const Range> plain) const;

  /// encode() with the BOS and EOS tokens around it that the file asks for: what a model wants as its prompt.
  std::vector<Token> encode_prompt(std::string_view text, bool parse_special) const;

  /// The bytes of one token (may be part of a UTF-8 character). Control tokens give "" unless `special`.
  /// Throws Error if there is no such token.
  std::string piece(Token token, bool special = false) const;

  int size() const;
  /// True for the tokens that end generation: eos, eot and their like.
  bool is_end(Token token) const;
  /// -1 if the file names none.
  Token eos() const;
  /// BOS to put before a prompt, or -1 if the model wants none.
  Token bos() const;
  /// Id of the token with exactly this text in the byte-level alphabet (plain ASCII without blanks is
  /// itself), or -1.
  Token find(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Turns a stream of tokens into text that is valid UTF-8 at every point: bytes of an unfinished character
/// are held back until it is complete; bytes that can never become one are replaced by U+FFFD, one for each
/// maximal subpart (Unicode's recommended practice). The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false);
  /// The text that this token completes, maybe none.
  std::string push(Token token);
  std::string push_bytes(std::string_view bytes);
  /// What is still held back, at the end of the stream.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  std::string held_;
};

}  // namespace redlite::tokenizer
