#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "constrain/automaton.h"
#include "constrain/constrain.h"
#include "constrain/vocabulary.h"

namespace redlite::constrain {
namespace {

/// Masks that are kept: 19 KB each with 150,000 tokens.
constexpr size_t kMaxMasks = 192;
/// What one mask may take, in places looked at: about a tenth of a second. Ordinary grammars take a
/// hundredth.
constexpr uint64_t kMaxWork = 2'000'000;
/// Most configurations that are looked at to see whether all texts of a kind can follow.
constexpr int kMaxLooks = 800;

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

class Filter final : public engine::TokenFilter {
 public:
  Filter(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)),
        automaton_(std::move(grammar)),
        config_(automaton_.start()),
        path_(vocabulary_->max_depth() + 1) {
    if (config_ == Automaton::kDead)
      fail("what the answer must look like has too many alternatives: simplify it");
  }

  void apply(std::span<float> logits) override;
  void accept(model::Token token) override;

 private:
  const TokenSet& mask();
  bool fill(TokenSet& out);
  bool walk(const TokenTree& tree, size_t begin, size_t end, Automaton::Config config, TokenSet& out);
  bool walk_all(Automaton::Config config, TokenSet& out);
  bool all_follow(const PlainText& kind, uint8_t state, Automaton::Config config, int bytes);
  bool walk_string(const Automaton::Place& place, TokenSet& out);
  bool out_of_budget() const { return automaton_.work() > work_limit_ || automaton_.overflown(); }
  void restart() {
    config_ = automaton_.restart(config_);
    masks_.clear();
    follows_.clear();
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  Automaton automaton_;
  Automaton::Config config_;
  std::unordered_map<Automaton::Config, TokenSet> masks_;
  std::vector<Automaton::Config> path_;  ///< configurations behind the nodes above, by depth
  /// By configuration, and kind of text and its state: how many bytes of it can follow, whatever they are.
  std::vector<std::array<uint8_t, PlainText::kKinds * PlainText::kStates>> follows_;
  int looks_ = 0;
  uint64_t work_limit_ = 0;
};

void add_tokens_at(const TokenTree& tree, size_t node, TokenSet& out) {
  for (uint32_t t = tree.nodes[node].first_token; t < tree.nodes[node + 1].first_token; ++t)
    out.add(tree.tokens[t]);
}

/// Adds the tokens of the tree's nodes begin..end that can follow; `config` is where the node above them
/// leads.
bool Filter::walk(const TokenTree& tree, size_t begin, size_t end, Automaton::Config config, TokenSet& out) {
  if (begin == end) return true;
  path_[tree.nodes[begin].depth - 1u] = config;
  for (size_t i = begin; i < end;) {
    const TokenTree::Node& node = tree.nodes[i];
    const Automaton::Config next = automaton_.next(path_[node.depth - 1u], node.byte);
    if (next == Automaton::kDead) {
      i = node.end;
      continue;
    }
    if (out_of_budget()) return false;
    path_[node.depth] = next;
    add_tokens_at(tree, i, out);
    ++i;
  }
  return true;
}

/// The same for all tokens. Most of them need not be looked at where all plain text of some kinds can follow.
bool Filter::walk_all(Automaton::Config config, TokenSet& out) {
  const std::vector<Vocabulary::Part>& parts = vocabulary_->parts();
  std::vector<const Vocabulary::Part*> left;
  looks_ = 0;
  // Where the longer texts of a kind follow, so do the shorter ones.
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->kind != nullptr && all_follow(*part->kind, 0, config, part->max_bytes)) {
      out.add(part->all);
    } else {
      left.push_back(&*part);
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (automaton_.next(config, static_cast<uint8_t>(byte)) == Automaton::kDead) continue;
    for (const Vocabulary::Part* part : left)
      if (!walk(part->tree, part->roots[byte], part->roots[byte + 1], config, out)) return false;
  }
  return true;
}

/// Whether so many bytes of a text of a kind, in its state, can follow, whatever they are. No may mean that
/// it would take too long to find out.
bool Filter::all_follow(const PlainText& kind, uint8_t state, Automaton::Config config, int bytes) {
  const size_t place = static_cast<size_t>(&kind - PlainText::kinds().data()) * PlainText::kStates + state;
  const auto at = static_cast<size_t>(config);
  if (at < follows_.size() && follows_[at][place] >= bytes) return true;
  if (++looks_ > kMaxLooks) return false;
  Automaton::Config last = Automaton::kDead;
  uint8_t last_state = PlainText::kDead;
  for (unsigned b = 0; b < 256; ++b) {
    const auto byte = static_cast<uint8_t>(b);
    const uint8_t next_state = kind.step(state, byte);
    if (next_state == PlainText::kDead) continue;
    const Automaton::Config next = automaton_.next(config, byte);
    if (next == Automaton::kDead || out_of_budget()) return false;
    if (bytes == 1 || (next == last && next_state == last_state)) continue;
    if (!all_follow(kind, next_state, next, bytes - 1)) return false;
    last = next;
    last_state = next_state;
  }
  if (at >= follows_.size()) follows_.resize(at + 1);
  follows_[at][place] = std::max(follows_[at][place], static_cast<uint8_t>(bytes));
  return true;
}

/// The tokens that stay in a string were found once for all; only those that end it need the grammar.
bool Filter::walk_string(const Automaton::Place& place, TokenSet& out) {
  const Node& node = automaton_.grammar().node(place.node);
  const Vocabulary::InString& table = vocabulary_->in_string(place.state);
  const size_t room = node.max == kNoLimit ? SIZE_MAX : node.max - place.characters;
  if (room >= table.max_characters()) {
    out.add(table.all);
  } else {
    const size_t fitting = table.begin_with[room + 1];
    if (fitting < table.tokens.size() / 2) {
      for (size_t i = 0; i < fitting; ++i) out.add(table.tokens[i]);
    } else {
      TokenSet some = table.all;
      for (size_t i = fitting; i < table.tokens.size(); ++i) some.remove(table.tokens[i]);
      out.add(some);
    }
  }
  const Automaton::Config behind = automaton_.after_string(place);
  for (const Vocabulary::InString::End& end : table.ends) {
    if (place.characters + end.characters < node.min || end.characters > room) continue;
    const TokenTree& tree = vocabulary_->tree();
    add_tokens_at(tree, end.node, out);
    if (!walk(tree, end.node + 1, tree.nodes[end.node].end, behind, out)) return false;
  }
  return true;
}

bool Filter::fill(TokenSet& out) {
  work_limit_ = automaton_.work() + kMaxWork;
  const std::span<const Automaton::Place> now = automaton_.places(config_);
  std::vector<Automaton::Place> strings, others;
  for (const Automaton::Place& place : now) {
    const bool is_string = automaton_.grammar().node(place.node).kind == Node::Kind::String;
    (is_string ? strings : others).push_back(place);
  }
  for (const Automaton::Place& place : strings)
    if (!walk_string(place, out)) return false;
  if (!others.empty()) {
    const Automaton::Config rest =
        strings.empty() ? config_ : automaton_.subset(others, automaton_.may_end(config_));
    if (!walk_all(rest, out)) return false;
  }
  if (automaton_.may_end(config_))
    for (const uint32_t token : vocabulary_->ends()) out.add(token);
  return true;
}

const TokenSet& Filter::mask() {
  if (automaton_.overflown()) restart();
  if (const auto known = masks_.find(config_); known != masks_.end()) return known->second;
  if (masks_.size() >= kMaxMasks) masks_.clear();
  TokenSet out(vocabulary_->size());
  for (bool restarted = false; !fill(out); restarted = true) {
    // Either the tables were nearly full, or there are too many alternatives at once: a quarter of them is as
    // right.
    if (restarted) {
      const size_t n = automaton_.places(config_).size();
      if (n < 2) fail("what the answer must look like is too ambiguous to be followed: simplify it");
      automaton_.limit_places((n + 3) / 4);
    }
    restart();
    out = TokenSet(vocabulary_->size());
  }
  return masks_.emplace(config_, std::move(out)).first->second;
}

void Filter::apply(std::span<float> logits) {
  const size_t n = vocabulary_->size();
  RL_CHECK(logits.size() >= n, "{} logits for {} tokens", logits.size(), n);
  const TokenSet& allowed = mask();
  if (allowed.empty()) fail("the model's vocabulary has no token for what the answer must go on with");
  std::fill(logits.begin() + static_cast<ptrdiff_t>(n), logits.end(), kForbidden);
  for (size_t w = 0; w < allowed.words().size(); ++w) {
    const uint64_t word = allowed.words()[w];
    const std::span<float> part = logits.subspan(w * 64, std::min<size_t>(64, n - w * 64));
    if (std::popcount(word) > 32) {
      for (uint64_t rest = ~word; rest != 0; rest &= rest - 1) {
        const auto i = static_cast<size_t>(std::countr_zero(rest));
        if (i >= part.size()) break;
        part[i] = kForbidden;
      }
    } else {
      std::array<float, 64> kept;  // only what is read again is written
      for (uint64_t rest = word; rest != 0; rest &= rest - 1) {
        const auto i = static_cast<size_t>(std::countr_zero(rest));
        kept[i] = part[i];
      }
      std::fill(part.begin(), part.end(), kForbidden);
      for (uint64_t rest = word; rest != 0; rest &= rest - 1) {
        const auto i = static_cast<size_t>(std::countr_zero(rest));
        part[i] = kept[i];
      }
    }
  }
}

void Filter::accept(model::Token token) {
  RL_CHECK(token >= 0 && static_cast<size_t>(token) < vocabulary_->size());
  if (automaton_.overflown()) restart();
  const std::string_view bytes = vocabulary_->bytes(static_cast<size_t>(token));
  RL_CHECK(!bytes.empty(), "token {} has no text", token);
  for (const char byte : bytes) {
    config_ = automaton_.next(config_, static_cast<uint8_t>(byte));
    RL_CHECK(config_ != Automaton::kDead, "token {} was not allowed", token);
  }
}

}  // namespace

std::unique_ptr<engine::TokenFilter> make_filter(std::shared_ptr<const Grammar> grammar,
                                                 std::shared_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<Filter>(std::move(grammar), std::move(vocabulary));
}

}  // namespace redlite::constrain
