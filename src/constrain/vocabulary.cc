#include "constrain/vocabulary.h"

#include <algorithm>
#include <numeric>

#include "chat/answer_parser.h"

namespace redlite::constrain {

namespace {

/// No word is longer; a longer one would only make tables larger, so it is not used.
constexpr size_t kMaxTokenBytes = 1024;

}  // namespace

bool TokenSet::empty() const {
  return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
}

void TokenSet::add(const TokenSet& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

Vocabulary::Vocabulary(const tokenizer::Tokenizer& tokenizer) : size_(static_cast<size_t>(tokenizer.size())) {
  bytes_begin_.reserve(size_ + 1);
  bytes_begin_.push_back(0);
  for (size_t token = 0; token < size_; ++token) {
    const auto id = static_cast<tokenizer::Token>(token);
    if (tokenizer.is_end(id)) {
      ends_.push_back(static_cast<uint32_t>(token));
    } else {
      const std::string piece = chat::answer_piece(tokenizer, id);
      if (piece.size() <= kMaxTokenBytes) bytes_ += piece;
    }
    bytes_begin_.push_back(bytes_.size());
  }
  build_tree();
  for (uint8_t state = 0; state < StringAutomaton::kStates; ++state) in_string_[state] = walk_string(state);
}

void Vocabulary::build_tree() {
  for (uint32_t token = 0; token < size_; ++token)
    if (!bytes(token).empty()) tokens_.push_back(token);
  std::sort(tokens_.begin(), tokens_.end(), [this](uint32_t a, uint32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order < 0 || (order == 0 && a < b);
  });
  std::vector<uint32_t> path;  // the nodes above
  std::string_view last;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = bytes(tokens_[i]);
    if (text == last) continue;
    size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    for (; path.size() > common; path.pop_back())
      tree_[path.back()].end = static_cast<uint32_t>(tree_.size());
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(tree_.size()));
      // Nodes on the way to a text have no tokens of their own: theirs begin, and end, where the text's
      // begin.
      tree_.push_back({0, i, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(text[depth])});
    }
    max_depth_ = std::max(max_depth_, text.size());
    last = text;
  }
  for (; !path.empty(); path.pop_back()) tree_[path.back()].end = static_cast<uint32_t>(tree_.size());
  tree_.push_back({static_cast<uint32_t>(tree_.size() + 1), static_cast<uint32_t>(tokens_.size()), 0, 0});
}

Vocabulary::InString Vocabulary::walk_string(uint8_t state) const {
  InString out;
  out.all = TokenSet(size_);
  struct Place {
    uint8_t state;
    uint16_t characters;
  };
  std::vector<Place> path(max_depth_ + 1);
  path[0] = {state, 0};
  std::vector<std::pair<uint16_t, uint32_t>> staying;
  for (uint32_t i = 0; i + 1 < tree_.size();) {
    const TreeNode& node = tree_[i];
    const Place above = path[node.depth - 1u];
    const uint8_t next = StringAutomaton::step(above.state, node.byte);
    if (next == StringAutomaton::kEnd) out.ends.push_back({i, above.characters});
    if (next == StringAutomaton::kDead || next == StringAutomaton::kEnd) {
      i = node.end;
      continue;
    }
    const auto begun = static_cast<uint16_t>(above.characters + (above.state == StringAutomaton::kStart));
    path[node.depth] = {next, begun};
    for (uint32_t t = node.first_token; t < tree_[i + 1].first_token; ++t) {
      staying.emplace_back(begun, tokens_[t]);
      out.all.add(tokens_[t]);
    }
    ++i;
  }
  std::sort(staying.begin(), staying.end());
  const size_t most = staying.empty() ? 0 : staying.back().first;
  out.begin_with.assign(most + 2, 0);
  for (const auto& [characters, token] : staying) {
    out.tokens.push_back(token);
    ++out.begin_with[characters + 1u];
  }
  std::partial_sum(out.begin_with.begin(), out.begin_with.end(), out.begin_with.begin());
  return out;
}

std::shared_ptr<const Vocabulary> make_vocabulary(const tokenizer::Tokenizer& tokenizer) {
  return std::make_shared<Vocabulary>(tokenizer);
}

}  // namespace redlite::constrain
