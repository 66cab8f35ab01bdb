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
  std::vector<uint32_t> tokens;
  for (uint32_t token = 0; token < size_; ++token) {
    max_depth_ = std::max(max_depth_, bytes(token).size());
    if (!bytes(token).empty()) tokens.push_back(token);
  }
  tree_ = make_tree(std::move(tokens));
  make_parts();
  for (uint8_t state = 0; state < StringAutomaton::kStates; ++state) in_string_[state] = walk_string(state);
}

TokenTree Vocabulary::make_tree(std::vector<uint32_t> tokens) const {
  TokenTree out;
  std::sort(tokens.begin(), tokens.end(), [this](uint32_t a, uint32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order < 0 || (order == 0 && a < b);
  });
  std::vector<uint32_t> path;  // the nodes above
  std::string_view last;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = bytes(tokens[i]);
    if (text == last) continue;
    size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    for (; path.size() > common; path.pop_back())
      out.nodes[path.back()].end = static_cast<uint32_t>(out.nodes.size());
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(out.nodes.size()));
      // Nodes on the way to a text have no tokens of their own: theirs begin, and end, where the text's
      // begin.
      out.nodes.push_back({0, i, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(text[depth])});
    }
    last = text;
  }
  for (; !path.empty(); path.pop_back()) out.nodes[path.back()].end = static_cast<uint32_t>(out.nodes.size());
  out.nodes.push_back(
      {static_cast<uint32_t>(out.nodes.size() + 1), static_cast<uint32_t>(tokens.size()), 0, 0});
  out.tokens = std::move(tokens);
  return out;
}

void Vocabulary::make_parts() {
  const std::span<const PlainText> kinds = PlainText::kinds();
  const size_t lengths = kPartBytes.size();
  std::vector<std::vector<uint32_t>> tokens(kinds.size() * lengths + 1);
  for (const uint32_t token : tree_.tokens) {
    const std::string_view text = bytes(token);
    const auto length = static_cast<size_t>(
        std::lower_bound(kPartBytes.begin(), kPartBytes.end(), static_cast<int>(text.size())) -
        kPartBytes.begin());
    const auto kind = static_cast<size_t>(
        std::find_if(kinds.begin(), kinds.end(), [&](const PlainText& k) { return k.contains(text); }) -
        kinds.begin());
    const bool plain = length < lengths && kind < kinds.size();
    tokens[plain ? kind * lengths + length : tokens.size() - 1].push_back(token);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;
    Part& part = parts_.emplace_back();
    if (i + 1 < tokens.size()) {
      part.kind = &kinds[i / lengths];
      part.max_bytes = kPartBytes[i % lengths];
    }
    part.all = TokenSet(size_);
    for (const uint32_t token : tokens[i]) part.all.add(token);
    part.tree = make_tree(std::move(tokens[i]));
    uint32_t root = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      part.roots[byte] = root;
      if (root < part.tree.size() && part.tree.nodes[root].byte == byte) root = part.tree.nodes[root].end;
    }
    part.roots[256] = root;
  }
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
  for (uint32_t i = 0; i < tree_.size();) {
    const TokenTree::Node& node = tree_.nodes[i];
    const Place above = path[node.depth - 1u];
    const uint8_t next = StringAutomaton::step(above.state, node.byte);
    if (next == StringAutomaton::kEnd) out.ends.push_back({i, above.characters});
    if (next == StringAutomaton::kDead || next == StringAutomaton::kEnd) {
      i = node.end;
      continue;
    }
    const auto begun = static_cast<uint16_t>(above.characters + (above.state == StringAutomaton::kStart));
    path[node.depth] = {next, begun};
    for (uint32_t t = node.first_token; t < tree_.nodes[i + 1].first_token; ++t) {
      staying.emplace_back(begun, tree_.tokens[t]);
      out.all.add(tree_.tokens[t]);
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
