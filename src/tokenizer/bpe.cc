#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace redlite::tokenizer {
namespace {

/// Code point of each byte: printable Latin-1 characters stand for themselves, the others are numbered from
/// U+0100.
std::array<uint32_t, 256> make_byte_code_points() {
  std::array<uint32_t, 256> points{};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    points[byte] = printable ? byte : next++;
  }
  return points;
}

const std::array<uint32_t, 256>& byte_code_points() {
  static const std::array<uint32_t, 256> points = make_byte_code_points();
  return points;
}

/// The reverse, for the code points below 0x144; -1 for those that stand for no byte.
std::array<int, 0x144> make_bytes_of_code_points() {
  std::array<int, 0x144> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[byte_code_points()[static_cast<size_t>(byte)]] = byte;
  return bytes;
}

size_t hash_pair(uint64_t pair) {
  return static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> 20);
}

/// Heap order: the smallest candidate on top.
constexpr auto kLater = [](const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.order > b.order;
};

}  // namespace

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> made;
    for (size_t byte = 0; byte < 256; ++byte) append_utf8(made[byte], byte_code_points()[byte]);
    return made;
  }();
  return characters;
}

std::string decode_byte_characters(std::string_view text) {
  static const std::array<int, 0x144> bytes = make_bytes_of_code_points();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    if (c.value < bytes.size() && bytes[c.value] >= 0) {
      out.push_back(static_cast<char>(bytes[c.value]));
    } else {
      out.append(text.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  return out;
}

Bpe::Bpe(const Vocabulary& vocabulary, std::string_view where) : vocabulary_(vocabulary) {
  const size_t n_tokens = vocabulary.texts.size();
  symbols_.reserve(n_tokens + n_tokens / 4);
  for (size_t i = 0; i < n_tokens; ++i) {
    const auto [at, is_new] = symbols_.emplace(vocabulary.texts[i], static_cast<uint32_t>(i));
    if (!is_new) fail("{}: tokenizer.ggml.tokens: tokens {} and {} have the same text", where, at->second, i);
  }
  for (size_t byte = 0; byte < 256; ++byte) byte_symbols_[byte] = intern(byte_characters()[byte]);

  merges_.resize(std::bit_ceil(2 * vocabulary.merges.size() + 1));
  merged_.resize(vocabulary.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      fail("{}: tokenizer.ggml.merges: entry {} is not two texts with a space between", where, rank);
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left).append(right);
    merged_[rank] = intern(joined);
    add_merge(static_cast<uint32_t>(rank), intern(left), intern(right));
  }
}

uint32_t Bpe::intern(std::string_view text) {
  const auto known = symbols_.find(text);
  if (known != symbols_.end()) return known->second;
  const auto symbol = static_cast<uint32_t>(vocabulary_.texts.size() + extra_texts_.size());
  symbols_.emplace(extra_texts_.emplace_back(text), symbol);
  return symbol;
}

void Bpe::add_merge(uint32_t rank, uint32_t left, uint32_t right) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | right;
  size_t at = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[at].pair != UINT64_MAX) {
    if (merges_[at].pair == pair) return;  // listed twice: the first counts
    at = (at + 1) & (merges_.size() - 1);
  }
  merges_[at] = {pair, rank};
}

const Bpe::Merge* Bpe::find_merge(uint32_t left, uint32_t right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | right;
  size_t at = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[at].pair != UINT64_MAX) {
    if (merges_[at].pair == pair) return &merges_[at];
    at = (at + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

void Bpe::push_candidate(Scratch& scratch, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const Scratch::Node& a = scratch.nodes[static_cast<size_t>(left)];
  const Scratch::Node& b = scratch.nodes[static_cast<size_t>(right)];
  const Merge* merge = find_merge(a.symbol, b.symbol);
  if (!merge) return;
  scratch.heap.push_back(
      {static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(left), a.length + b.length});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), kLater);
}

void Bpe::encode(std::string_view word, std::vector<Token>& out, Scratch& scratch) const {
  const auto n = static_cast<int32_t>(word.size());
  scratch.nodes.clear();
  scratch.heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    const auto byte = static_cast<uint8_t>(word[static_cast<size_t>(i)]);
    scratch.nodes.push_back({byte_symbols_[byte], 1, i - 1, i + 1 < n ? i + 1 : -1});
  }
  for (int32_t i = 1; i < n; ++i) push_candidate(scratch, i - 1, i);

  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), kLater);
    const Scratch::Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    const auto left = static_cast<int32_t>(best.order & UINT32_MAX);
    Scratch::Node& a = scratch.nodes[static_cast<size_t>(left)];
    if (a.length == 0 || a.next < 0) continue;
    Scratch::Node& b = scratch.nodes[static_cast<size_t>(a.next)];
    if (a.length + b.length != best.length) continue;

    a.symbol = merged_[best.order >> 32];
    a.length += b.length;
    a.next = b.next;
    b.length = 0;
    if (a.next >= 0) scratch.nodes[static_cast<size_t>(a.next)].prev = left;
    push_candidate(scratch, a.prev, left);
    push_candidate(scratch, left, a.next);
  }

  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = scratch.nodes[static_cast<size_t>(i)].next) {
    append_symbol(scratch.nodes[static_cast<size_t>(i)].symbol, out);
  }
}

Token Bpe::find(std::string_view text) const {
  const auto known = symbols_.find(text);
  const bool is_token = known != symbols_.end() && known->second < vocabulary_.texts.size();
  return is_token ? static_cast<Token>(known->second) : -1;
}

std::string_view Bpe::text_of(uint32_t symbol) const {
  const size_t n_tokens = vocabulary_.texts.size();
  return symbol < n_tokens ? vocabulary_.texts[symbol] : extra_texts_[symbol - n_tokens];
}

void Bpe::append_symbol(uint32_t symbol, std::vector<Token>& out) const {
  if (symbol < vocabulary_.texts.size()) {
    out.push_back(static_cast<Token>(symbol));
    return;
  }
  const std::string_view text = text_of(symbol);
  for (size_t i = 0; i < text.size(); ++i) {
    const Token token = find(text.substr(i, 1));
    if (token >= 0) out.push_back(token);
  }
}

}  // namespace redlite::tokenizer
