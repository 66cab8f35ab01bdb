#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace redlite::tokenizer {

/// Byte pair encoding of one word at a time. Symbols are texts of the byte-level alphabet: first all tokens,
/// then the texts that only merges produce (they too can be merged further).
///
/// Keeps references into the vocabulary, which must outlive it and stay where it is.
class Bpe {
 public:
  /// `where` starts the messages of errors: a text that two tokens share, a merge without two parts.
  Bpe(const Vocabulary& vocabulary, std::string_view where);

  /// Working memory of encode(), reused from word to word.
  struct Scratch {
    struct Node {
      uint32_t symbol;
      uint32_t length;  ///< bytes of the word; 0 when merged into the node to its left
      int32_t prev;
      int32_t next;
    };
    struct Candidate {
      uint64_t order;   ///< rank of the merge, then position of its left node: the smallest goes first
      uint32_t length;  ///< of both nodes together; differs from theirs once either has grown
    };
    std::vector<Node> nodes;
    std::vector<Candidate> heap;
  };

  /// Appends the tokens of a word (any bytes): again and again the pair of neighbours with the lowest-ranked
  /// merge, the leftmost of equals, becomes one symbol. n log n in the word's length. A symbol that is no
  /// token gives the tokens of its text's single bytes, where they exist: what llama.cpp does.
  void encode(std::string_view word, std::vector<Token>& out, Scratch& scratch) const;

  /// The token with this text, in the byte-level alphabet; -1 if there is none.
  Token find(std::string_view text) const;

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;  ///< left symbol << 32 | right symbol
    uint32_t rank = 0;
  };

  uint32_t intern(std::string_view text);
  void add_merge(uint32_t rank, uint32_t left, uint32_t right);
  const Merge* find_merge(uint32_t left, uint32_t right) const;
  void push_candidate(Scratch& scratch, int32_t left, int32_t right) const;
  std::string_view text_of(uint32_t symbol) const;
  void append_symbol(uint32_t symbol, std::vector<Token>& out) const;

  const Vocabulary& vocabulary_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
  std::deque<std::string> extra_texts_;
  std::array<uint32_t, 256> byte_symbols_{};
  std::vector<Merge> merges_;     ///< hash table, open addressing; its size is a power of two
  std::vector<uint32_t> merged_;  ///< the symbol that the merge of each rank makes
};

/// The byte-level alphabet: each byte as a printable character, as UTF-8.
const std::array<std::string, 256>& byte_characters();

/// The bytes that a text of the byte-level alphabet stands for; other characters stand for themselves.
std::string decode_byte_characters(std::string_view text);

}  // namespace redlite::tokenizer
