#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "constrain/constrain.h"
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

/// The tokens' bytes as a tree, in depth-first order, and what each of them does inside a JSON string.
class Vocabulary {
 public:
  explicit Vocabulary(const tokenizer::Tokenizer& tokenizer);

  struct TreeNode {
    uint32_t end;          ///< behind the last node below this one
    uint32_t first_token;  ///< in tokens_at(): those whose bytes end here; the next node's follow
    uint16_t depth;        ///< from 1 on
    uint8_t byte;
  };

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

  size_t size() const { return size_; }
  const std::vector<TreeNode>& tree() const { return tree_; }
  uint32_t first_token(size_t node) const { return tree_[node].first_token; }
  /// Tokens in the order of the tree; TreeNode::first_token indexes it.
  const std::vector<uint32_t>& tokens() const { return tokens_; }
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
  void build_tree();
  InString walk_string(uint8_t state) const;

  size_t size_ = 0;
  std::string bytes_;
  std::vector<size_t> bytes_begin_;
  std::vector<uint32_t> ends_;
  std::vector<TreeNode> tree_;  ///< one more at the end
  std::vector<uint32_t> tokens_;
  size_t max_depth_ = 0;
  std::array<InString, StringAutomaton::kStates> in_string_;
};

}  // namespace redlite::constrain
