#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "constrain/constrain.h"
#include "constrain/plain_text.h"
#include "constrain/string_automaton.h"

namespace redlite::constrain {

/// One bit a token.
class TokenSet {
 public:
  TokenSet() = default;
  explicit TokenSet(size_t n_tokens) : words_((n_tokens + 63) / 64) {}

  void add(size_t token) { words_[token / 64] |= uint64_t{1} << (token % 64); }
  void remove(size_t token) { words_[token / 64] &= ~(uint64_t{1} << (token % 64)); }
  bool has(size_t token) const { return (words_[token / 64] >> (token % 64) & 1) != 0; }
  bool empty() const;
  void add(const TokenSet& other);
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

/// Tokens by their bytes, as a tree in depth-first order.
struct TokenTree {
  struct Node {
    uint32_t end;          ///< behind the last node below this one
    uint32_t first_token;  ///< in `tokens`: those whose bytes end here; the next node's follow
    uint16_t depth;        ///< from 1 on
    uint8_t byte;
  };
  std::vector<Node> nodes;  ///< one more at the end
  std::vector<uint32_t> tokens;

  size_t size() const { return nodes.size() - 1; }
};

/// The tokens as a tree of their bytes, what each of them does inside a JSON string, and which are plain
/// text.
class Vocabulary {
 public:
  explicit Vocabulary(const tokenizer::Tokenizer& tokenizer);

  /// What tokens do when a JSON string is in one state of StringAutomaton.
  struct InString {
    std::vector<uint32_t> tokens;  ///< those that stay in it, by the characters that they begin
    std::vector<uint32_t>
        begin_with;  ///< [n]: of those that begin n characters, the first; one more at the end
    TokenSet all;    ///< of `tokens`
    struct End {
      uint32_t node;  ///< of the tree, at which the string ends
      uint16_t characters;
    };
    std::vector<End> ends;
    size_t max_characters() const { return begin_with.size() - 2; }
  };

  /// Tokens that are plain text of one kind and no longer than so many bytes; or all others.
  struct Part {
    const PlainText* kind = nullptr;  ///< or others
    int max_bytes = 0;
    TokenSet all;
    TokenTree tree;
    std::array<uint32_t, 257> roots;  ///< of the tree, by first byte; roots[b + 1] lies behind those of b
  };
  /// Lengths at which the kinds' parts are divided.
  static constexpr std::array<int, 2> kPartBytes = {8, 16};

  size_t size() const { return size_; }
  const TokenTree& tree() const { return tree_; }
  /// Every token is in one of them. Those of a kind follow each other, the shortest tokens first.
  const std::vector<Part>& parts() const { return parts_; }
  size_t max_depth() const { return max_depth_; }
  const InString& in_string(uint8_t state) const { return in_string_[state]; }
  /// The tokens that end an answer.
  const std::vector<uint32_t>& ends() const { return ends_; }
  /// The bytes of a token.
  std::string_view bytes(size_t token) const {
    return std::string_view(bytes_).substr(bytes_begin_[token],
                                           bytes_begin_[token + 1] - bytes_begin_[token]);
  }

 private:
  TokenTree make_tree(std::vector<uint32_t> tokens) const;
  void make_parts();
  InString walk_string(uint8_t state) const;

  size_t size_ = 0;
  std::string bytes_;
  std::vector<size_t> bytes_begin_;
  std::vector<uint32_t> ends_;
  TokenTree tree_;
  std::vector<Part> parts_;
  size_t max_depth_ = 0;
  std::array<InString, StringAutomaton::kStates> in_string_;
};

}  // namespace redlite::constrain
